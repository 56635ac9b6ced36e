//! Compiles the core's protobuf contract, without protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let proto = "proto/core.proto";
    println!("cargo:rerun-if-changed={proto}");
    let descriptors = protox::compile([proto], ["proto"])?;
    prost_build::Config::new().compile_fds(descriptors)?;
    Ok(())
}
