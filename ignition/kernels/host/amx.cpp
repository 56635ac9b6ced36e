// Asks the kernel to let this process use AMX tiles, when the module is loaded.
#if defined(__AMX_BF16__)
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
constexpr long kTileData = 18;

// Without permission the first tile would end the process by a signal that says nothing, so a refusal ends it here.
[[gnu::constructor]] void request_tiles() {
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0) return;
  std::fprintf(stderr,
               "this core uses AMX tiles, and the kernel refuses them to this process (ARCH_REQ_XCOMP_PERM: %s): allow "
               "arch_prctl in the sandbox, or prepare the core inside of it\n",
               std::strerror(errno));
  std::exit(EXIT_FAILURE);
}

}  // namespace
#endif
