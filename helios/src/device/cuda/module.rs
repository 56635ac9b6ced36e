//! A core's cubins in the context, and the functions of its kernels.
//!
//! Functions are loaded at once, whatever `CUDA_MODULE_LOADING` says: the memory that they take must be gone before what is
//! left is measured, and a launch must load nothing.
#![expect(unsafe_code, reason = "the driver's interface is C")]

use std::ffi::{CString, c_int};
use std::sync::Arc;

use super::context::Context;
use super::driver::{check, report, sys};
use crate::core::contract::{BoundContract, FunctionAttributes, Kernel};
use crate::device::DeviceError;
use crate::device::elf::{HEADER_BYTES, half, long};

const MAGIC_64_BIT_LITTLE_ENDIAN: &[u8] = b"\x7fELF\x02\x01";
const MACHINE_CUDA: u16 = 190;
const SECTION_HEADER_BYTES: usize = 64;
const SECTION_WITHOUT_BYTES: u32 = 8;
/// How the sections that hold a kernel's code are named, the kernel's name following.
const CODE_SECTION: &[u8] = b".text.";

/// The functions of a core's kernels, by index, with the modules that hold them.
#[derive(Debug)]
pub struct Kernels {
    functions: Vec<sys::CUfunction>,
    /// The sizes of each function's parameters.
    parameter_bytes: Vec<Vec<usize>>,
    names: Vec<String>,
    _modules: Vec<Module>,
}

// SAFETY: functions may be used from any thread; nothing here changes.
unsafe impl Send for Kernels {}

#[derive(Debug)]
struct Module {
    context: Arc<Context>,
    module: sys::CUmodule,
}

impl Kernels {
    /// Loads every module and every kernel's function, and sets the functions' attributes. The context is bound.
    pub fn load(
        context: &Arc<Context>,
        contract: &BoundContract,
        images: &[Vec<u8>],
    ) -> Result<Self, DeviceError> {
        let modules = contract.modules.iter().zip(images);
        let modules: Vec<Module> = modules
            .map(|(module, image)| Module::load(context, &module.name, image))
            .collect::<Result<_, _>>()?;
        let function = |kernel: &Kernel| {
            let module = kernel.module as usize;
            modules[module].function(&contract.modules[module].name, kernel)
        };
        let functions: Vec<sys::CUfunction> =
            contract.kernels.iter().map(function).collect::<Result<_, _>>()?;
        let sizes = |&function| {
            let layout = parameter_layout(function)?;
            Ok(layout.into_iter().map(|(_, size)| size).collect())
        };
        let parameter_bytes = functions.iter().map(sizes).collect::<Result<_, DeviceError>>()?;
        let names = contract.kernels.iter().map(|kernel| kernel.symbol.clone()).collect();
        Ok(Self { functions, parameter_bytes, names, _modules: modules })
    }

    pub(super) fn function(&self, kernel: u32) -> sys::CUfunction {
        self.functions[kernel as usize]
    }

    /// Checks that a kernel takes parameters of exactly these sizes.
    pub(super) fn check_parameters(&self, kernel: u32, parameter_bytes: &[u32]) -> Result<(), DeviceError> {
        let expected = &self.parameter_bytes[kernel as usize];
        let given = parameter_bytes.iter().map(|&bytes| bytes as usize);
        if given.eq(expected.iter().copied()) {
            return Ok(());
        }
        let reason = format!("takes parameters of {expected:?} bytes, and a launch has {parameter_bytes:?}");
        Err(DeviceError::Kernel { kernel: self.names[kernel as usize].clone(), reason })
    }
}

impl Module {
    fn load(context: &Arc<Context>, name: &str, image: &[u8]) -> Result<Self, DeviceError> {
        let refused = |reason: String| DeviceError::Module { module: name.to_owned(), reason };
        check_image(image).map_err(|reason| refused(reason.to_owned()))?;
        let mut module = std::ptr::null_mut();
        // SAFETY: the image is a complete cubin, which the driver copies.
        let loaded = unsafe { sys::cuModuleLoadData(&raw mut module, image.as_ptr().cast()) };
        check("cuModuleLoadData", loaded).map_err(|error| refused(error.to_string()))?;
        Ok(Self { context: Arc::clone(context), module })
    }

    fn function(&self, module: &str, kernel: &Kernel) -> Result<sys::CUfunction, DeviceError> {
        let symbol =
            CString::new(kernel.symbol.as_str()).expect("a bound symbol has graphic characters only");
        let mut function = std::ptr::null_mut();
        // SAFETY: the module is loaded, and the driver writes one handle, which lives as long as the module.
        let found = unsafe { sys::cuModuleGetFunction(&raw mut function, self.module, symbol.as_ptr()) };
        check("cuModuleGetFunction", found).map_err(|error| DeviceError::Module {
            module: module.to_owned(),
            reason: format!("it has no kernel `{}` ({error})", kernel.symbol),
        })?;
        // SAFETY: the function is one of a loaded module.
        check("cuFuncLoad", unsafe { sys::cuFuncLoad(function) })?;
        set_attributes(function, &kernel.function).map_err(|error| DeviceError::Kernel {
            kernel: kernel.symbol.clone(),
            reason: format!("cannot be set up as it was captured ({error})"),
        })?;
        Ok(function)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        report(self.context.bind());
        // SAFETY: the module was loaded once, and what used its functions is gone.
        report(check("cuModuleUnload", unsafe { sys::cuModuleUnload(self.module) }));
    }
}

/// The offset and size of each of a function's parameters.
pub(super) fn parameter_layout(function: sys::CUfunction) -> Result<Vec<(usize, usize)>, DeviceError> {
    let mut layout = Vec::new();
    loop {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the function is one of a loaded module; the driver writes two integers.
        match unsafe { sys::cuFuncGetParamInfo(function, layout.len(), &raw mut offset, &raw mut size) } {
            // There is no parameter of that number.
            sys::CUresult::CUDA_ERROR_INVALID_VALUE => return Ok(layout),
            answer => check("cuFuncGetParamInfo", answer)?,
        }
        layout.push((offset, size));
    }
}

fn set_attributes(function: sys::CUfunction, attributes: &FunctionAttributes) -> Result<(), DeviceError> {
    use sys::CUfunction_attribute as Attribute;
    let set = |attribute, value: u32| {
        let value = c_int::try_from(value).expect("bound attributes are small");
        // SAFETY: the function is one of a loaded module.
        check("cuFuncSetAttribute", unsafe { sys::cuFuncSetAttribute(function, attribute, value) })
    };
    if attributes.max_dynamic_shared_bytes > 0 {
        let bytes = attributes.max_dynamic_shared_bytes;
        set(Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes)?;
    }
    if attributes.non_portable_cluster {
        set(Attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)?;
    }
    if let Some(percent) = attributes.preferred_carveout {
        set(Attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, percent)?;
    }
    Ok(())
}

/// The names of an image's kernels; none where it is no cubin.
pub(super) fn kernel_names(image: &[u8]) -> Vec<String> {
    if check_image(image).is_err() {
        return Vec::new();
    }
    let headers = section_headers(image);
    // The section of the sections' names.
    let index = usize::from(half(image, 62));
    let Some(names) = headers.clone().nth(index).and_then(|header| image.get(long(header, 24) as usize..))
    else {
        return Vec::new();
    };
    let name = |header: &[u8]| {
        let start = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let name = names.get(start..)?.split(|&byte| byte == 0).next()?.strip_prefix(CODE_SECTION)?;
        String::from_utf8(name.to_vec()).ok()
    };
    headers.filter_map(name).collect()
}

/// The bytes of an image that begins at `start`, by what its header says; `None` where it is no ELF image.
///
/// # Safety
/// Where the bytes there begin as a 64-bit ELF image does, the whole image is there.
pub(super) unsafe fn image_bytes<'a>(start: *const u8) -> Option<&'a [u8]> {
    // SAFETY: whatever the driver takes for an image is longer than this.
    let magic = unsafe { std::slice::from_raw_parts(start, MAGIC_64_BIT_LITTLE_ENDIAN.len()) };
    if magic != MAGIC_64_BIT_LITTLE_ENDIAN {
        return None;
    }
    // SAFETY: the header is there.
    let header = unsafe { std::slice::from_raw_parts(start, HEADER_BYTES) };
    let product = |one, other| u64::from(half(header, one)) * u64::from(half(header, other));
    let table_end = long(header, 40) + product(58, 60);
    let end = table_end.max(long(header, 32) + product(54, 56)).max(HEADER_BYTES as u64);
    // SAFETY: the header's tables are there.
    let tables = unsafe { std::slice::from_raw_parts(start, end as usize) };
    let ends = section_headers(tables).filter(|header| has_bytes(header));
    let end = ends.map(|header| long(header, 24) + long(header, 32)).fold(end, u64::max);
    // SAFETY: the sections are there.
    Some(unsafe { std::slice::from_raw_parts(start, end as usize) })
}

/// The section headers of an image whose table is whole.
fn section_headers(image: &[u8]) -> std::slice::ChunksExact<'_, u8> {
    let start = long(image, 40) as usize;
    let count = usize::from(half(image, 60));
    image[start..start + count * SECTION_HEADER_BYTES].chunks_exact(SECTION_HEADER_BYTES)
}

fn has_bytes(header: &[u8]) -> bool {
    header[4..8] != SECTION_WITHOUT_BYTES.to_le_bytes()
}

/// Checks that bytes are a whole CUDA image, since the driver trusts the lengths in it. What its code does is not checked; its
/// core's digest vouches for it.
fn check_image(image: &[u8]) -> Result<(), &'static str> {
    if image.len() < HEADER_BYTES || !image.starts_with(MAGIC_64_BIT_LITTLE_ENDIAN) {
        return Err("it is no 64-bit ELF image");
    }
    if half(image, 18) != MACHINE_CUDA {
        return Err("it is no cubin");
    }
    if usize::from(half(image, 58)) != SECTION_HEADER_BYTES {
        return Err("its section headers have another size");
    }
    let table = usize::try_from(long(image, 40)).unwrap_or(usize::MAX);
    let table_end = table.checked_add(usize::from(half(image, 60)) * SECTION_HEADER_BYTES);
    if table_end.is_none_or(|end| end > image.len()) {
        return Err("its section headers are cut off");
    }
    for header in section_headers(image) {
        let end = long(header, 24).checked_add(long(header, 32));
        if has_bytes(header) && end.is_none_or(|end| end > image.len() as u64) {
            return Err("it is cut off");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header, and one section of `section_bytes` behind the section table.
    fn image(section_bytes: u64) -> Vec<u8> {
        let mut image = vec![0; HEADER_BYTES + SECTION_HEADER_BYTES + 16];
        image[..6].copy_from_slice(MAGIC_64_BIT_LITTLE_ENDIAN);
        image[18..20].copy_from_slice(&MACHINE_CUDA.to_le_bytes());
        image[40..48].copy_from_slice(&(HEADER_BYTES as u64).to_le_bytes());
        image[58..60].copy_from_slice(&(SECTION_HEADER_BYTES as u16).to_le_bytes());
        image[60..62].copy_from_slice(&1u16.to_le_bytes());
        let header = &mut image[HEADER_BYTES..];
        header[4] = 1;
        header[24..32].copy_from_slice(&((HEADER_BYTES + SECTION_HEADER_BYTES) as u64).to_le_bytes());
        header[32..40].copy_from_slice(&section_bytes.to_le_bytes());
        image
    }

    #[test]
    fn whole_cubins_pass_and_cut_ones_do_not() {
        assert_eq!(check_image(&image(16)), Ok(()));
        assert_eq!(check_image(&image(17)), Err("it is cut off"));
        assert_eq!(check_image(&image(u64::MAX)), Err("it is cut off"));
        let whole = image(16);
        assert_eq!(check_image(&whole[..whole.len() - 1]), Err("it is cut off"));
        assert_eq!(check_image(&whole[..100]), Err("its section headers are cut off"));
        assert_eq!(check_image(&whole[..63]), Err("it is no 64-bit ELF image"));
        let mut bare = image(u64::MAX);
        bare[HEADER_BYTES + 4] = 8;
        assert_eq!(check_image(&bare), Ok(()));
    }

    /// An image whose one section holds the sections' names, its own being that of a kernel's code.
    fn named_image() -> Vec<u8> {
        let names = b"\0.text.fused_0\0";
        let mut image = image(names.len() as u64);
        image[HEADER_BYTES] = 1;
        image.truncate(HEADER_BYTES + SECTION_HEADER_BYTES);
        image.extend_from_slice(names);
        image
    }

    #[test]
    fn kernels_are_named_by_their_sections() {
        assert_eq!(kernel_names(&named_image()), ["fused_0"]);
        assert_eq!(kernel_names(b"no image"), Vec::<String>::new());
        let mut elsewhere = named_image();
        elsewhere[62] = 9;
        assert_eq!(kernel_names(&elsewhere), Vec::<String>::new());
    }

    #[test]
    fn an_image_ends_where_its_last_section_does() {
        let mut bytes = named_image();
        let length = bytes.len();
        bytes.extend_from_slice(b"behind it");
        // SAFETY: the whole image is there.
        assert_eq!(unsafe { image_bytes(bytes.as_ptr()) }, Some(&bytes[..length]));
        // SAFETY: this begins as no ELF image does.
        assert_eq!(unsafe { image_bytes(b"// PTX text".as_ptr()) }, None);
    }

    #[test]
    fn other_images_are_no_cubins() {
        let program = std::fs::read("/proc/self/exe").unwrap();
        assert_eq!(check_image(&program), Err("it is no cubin"));
        let mut other = image(16);
        other[58] = 40;
        assert_eq!(check_image(&other), Err("its section headers have another size"));
    }
}
