//! The scripts of cross/, with stubs in place of zig, cargo and rustup.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use support::Folder;

/// Prints the linker command as `zig cc -v` does, without quotes, and creates its files.
const ZIG: &str = r#"
cache=$ZIG_GLOBAL_CACHE_DIR/o
mkdir -p "$cache/1" "$cache/2"
touch "$cache/1/crt1.o" "$cache/2/libc.a" "$cache/2/libcompiler_rt.a" "$cache/2/main.o"
echo "zig ld -s $cache/1/crt1.o $cache/2/main.o --as-needed $cache/2/libc.a $cache/2/libcompiler_rt.a" >&2
"#;

#[test]
fn cargo_sh_works_with_a_blank_in_the_home_folder() {
    let folder = Folder::new("cross");
    let stub = |path: &str, text: &str| {
        let path = folder.write(path, format!("#!/bin/sh\n{text}\n"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let version = fs::read_to_string(project.join("cross/ziglang.txt")).unwrap();
    let version = version.split_once("ziglang==").unwrap().1;
    let version = version.split(' ').next().unwrap();
    let tools = format!("a home/.cache/nodelet/ziglang-{version}/ziglang");
    stub(&format!("{tools}/zig"), ZIG);
    stub("bin/rustup", "echo rust-src");
    stub("bin/cargo", "printf '%s' \"$CARGO_ENCODED_RUSTFLAGS\"");
    let sysroot = folder.path().join("sysroot");
    stub(
        "bin/rustc",
        &format!(
            "case $1 in -vV) echo 'host: here' ;; *) echo '{}' ;; esac",
            sysroot.display()
        ),
    );
    stub("sysroot/lib/rustlib/here/bin/rust-objcopy", "exit 0");
    let output = Command::new(project.join("cross/cargo.sh"))
        .args(["x86_64-unknown-linux-musl", "build"])
        .env("HOME", folder.path().join("a home"))
        .env_remove("XDG_CACHE_HOME")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env(
            "PATH",
            format!(
                "{}:{}",
                folder.path().join("bin").display(),
                std::env::var("PATH").unwrap()
            ),
        )
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let libc = folder
        .path()
        .join(tools)
        .join("x86_64-unknown-linux-musl-O2-stub");
    for file in ["crt1.o", "libc.a", "libcompiler_rt.a"] {
        assert!(libc.join(file).exists(), "{file}: {errors}");
    }
    assert!(!libc.join("main.o").exists());
    let flags = String::from_utf8(output.stdout).unwrap();
    let flags: Vec<&str> = flags.split('\x1f').collect();
    // A build finds the unwinder of cross/unwind.c before zig's.
    let places = ["/release", ""].map(|below| {
        let native = format!("-Lnative={}{below}", libc.display());
        flags.iter().position(|flag| *flag == native).unwrap()
    });
    assert!(places[0] < places[1], "{flags:?}");
}
