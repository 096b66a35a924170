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

/// Both packages are armhf to dpkg; each installs where its binary is the right one.
#[test]
fn the_packages_for_armv6_and_armv7_look_at_the_cpu() {
    let script = include_str!("../../cross/debian/preinst");
    assert!(script.contains("package=@CPU@"));
    for (package, machine, action, installs) in [
        ("armhf", "armv7l", "install", true),
        ("armhf", "armv8l", "install", true),
        ("armhf", "aarch64", "install", true),
        ("armhf", "armv6l", "install", false),
        ("armhf", "armv6l", "upgrade", false),
        ("armhf", "armv6l", "abort-upgrade", true),
        ("armv6", "armv6l", "install", true),
        ("armv6", "armv6l", "upgrade", true),
        ("armv6", "armv7l", "install", false),
        ("armv6", "armv8l", "upgrade", false),
        // An image that is built on another machine.
        ("armv6", "x86_64", "install", true),
    ] {
        let folder = Folder::new("preinst");
        let uname = folder.write("uname", format!("#!/bin/sh\necho {machine}\n"));
        fs::set_permissions(&uname, fs::Permissions::from_mode(0o755)).unwrap();
        let preinst = folder.write("preinst", script.replace("@CPU@", package));
        let path = std::env::var("PATH").unwrap();
        let output = Command::new("sh")
            .arg(preinst)
            .arg(action)
            .env("PATH", format!("{}:{path}", folder.path().display()))
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.success(), installs, "{package} on {machine}: {said}");
        let other = if package == "armhf" { "armv6" } else { "armhf" };
        assert!(installs || said.contains(&format!("nodelet_*_{other}.deb")), "{said}");
    }
}

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
        &format!("case $1 in -vV) echo 'host: here' ;; *) echo '{}' ;; esac", sysroot.display()),
    );
    stub("sysroot/lib/rustlib/here/bin/rust-objcopy", "exit 0");
    let output = Command::new(project.join("cross/cargo.sh"))
        .args(["x86_64-unknown-linux-musl", "build"])
        .env("HOME", folder.path().join("a home"))
        .env_remove("XDG_CACHE_HOME")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env(
            "PATH",
            format!("{}:{}", folder.path().join("bin").display(), std::env::var("PATH").unwrap()),
        )
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let libc = folder.path().join(tools).join("x86_64-unknown-linux-musl-O2");
    for file in ["crt1.o", "libc.a", "libcompiler_rt.a"] {
        assert!(libc.join(file).exists(), "{file}: {errors}");
    }
    assert!(!libc.join("main.o").exists());
    let flags = String::from_utf8(output.stdout).unwrap();
    let flags: Vec<&str> = flags.split('\x1f').collect();
    let native = format!("-Lnative={}", libc.display());
    assert!(flags.contains(&native.as_str()), "{flags:?}");
}
