//! The scripts of cross/, with stubs in place of zig, cargo and rustup.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use support::{Folder, skip};

/// Prints the linker command as `zig cc -v` does, without quotes, and creates its files.
const ZIG: &str = r#"#!/bin/sh
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
        // An image that is built on another machine, or a card for several boards.
        ("armv6", "armv7l", "install", true),
        ("armv6", "armv8l", "upgrade", true),
        ("armv6", "x86_64", "install", true),
    ] {
        let folder = Folder::new("preinst");
        folder.program("bin/uname", format!("#!/bin/sh\necho {machine}\n"));
        let preinst = folder.write("preinst", script.replace("@CPU@", package));
        let output = Command::new("sh")
            .arg(preinst)
            .arg(action)
            .env("PATH", folder.search_path())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.success(), installs, "{package} on {machine}: {said}");
        let other = if package == "armhf" { "armv6" } else { "armhf" };
        let is_named = said.contains(&format!("nodelet_*_{other}.deb"));
        let is_slower = package == "armv6" && ["armv7l", "armv8l"].contains(&machine);
        assert_eq!(is_named, !installs || is_slower, "{said}");
    }
}

/// A folder with stubs in place of zig, cargo, rustup and rustc.
struct Tools {
    folder: Folder,
    /// The folder with the stub of zig.
    zig: PathBuf,
}

impl Tools {
    fn new(zig: &str, cargo: &str) -> Self {
        let folder = Folder::new("cross");
        let versions = include_str!("../../cross/ziglang.txt");
        let (_, version) = versions.split_once("ziglang==").unwrap();
        let version = version.split(' ').next().unwrap();
        let program = format!("a home/.cache/nodelet/ziglang-{version}/ziglang/zig");
        let program = folder.program(&program, zig);
        folder.program("bin/cargo", cargo);
        folder.program("bin/rustup", "#!/bin/sh\necho rust-src\n");
        let sysroot = folder.path().join("sysroot");
        let rustc = format!(
            "#!/bin/sh\n\
             case $1 in\n\
             -vV) echo 'host: here';; --version) echo rustc 1.2.3;; *) echo '{}';; esac\n",
            sysroot.display()
        );
        folder.program("bin/rustc", rustc);
        folder.program("sysroot/lib/rustlib/here/bin/rust-objcopy", "#!/bin/sh\n");
        Self { folder, zig: program.parent().unwrap().to_owned() }
    }

    /// Runs a script; there is a blank in the home folder.
    fn run(&self, script: &Path, args: &[&str]) -> Output {
        Command::new(script)
            .args(args)
            .env("HOME", self.folder.path().join("a home"))
            .env("CARGO_HOME", self.folder.path().join("cargo"))
            .env("PATH", self.folder.search_path())
            .env_remove("XDG_CACHE_HOME")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .output()
            .unwrap()
    }
}

#[test]
fn cargo_sh_works_with_a_blank_in_the_home_folder() {
    let tools = Tools::new(ZIG, "#!/bin/sh\nprintf '%s' \"$CARGO_ENCODED_RUSTFLAGS\"\n");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("cross/cargo.sh");
    let output = tools.run(&script, &["x86_64-unknown-linux-musl", "build"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let libc = tools.zig.join("x86_64-unknown-linux-musl-O2");
    for file in ["crt1.o", "libc.a", "libcompiler_rt.a"] {
        assert!(libc.join(file).exists(), "{file}: {errors}");
    }
    assert!(!libc.join("main.o").exists());
    let flags = String::from_utf8(output.stdout).unwrap();
    let flags: Vec<&str> = flags.split('\x1f').collect();
    let native = format!("-Lnative={}", libc.display());
    assert!(flags.contains(&native.as_str()), "{flags:?}");
}

/// What cargo and cargo-cyclonedx print for a project of the crate `a`, whose tests use `b`.
const CARGO: &str = r#"#!/bin/sh
case $* in
  *library/std/Cargo.toml*) echo 'core v0.0.0 (/library/core)|MIT'; echo 'hashbrown v0.16.1|MIT' ;;
  tree*)
    echo 'nodelet v0.1.0 (/a/folder)|Apache-2.0'
    echo 'a v1.0.0|MIT/Apache-2.0'
    echo 'a v1.0.0|MIT/Apache-2.0 (*)'
    ;;
  'cyclonedx --version') echo 'cargo-cyclonedx-cyclonedx 0.5.9' ;;
  cyclonedx*)
    echo '{"metadata": {"component": {"bom-ref": "path+file:///a/folder#nodelet"}},
      "components": [{"bom-ref": "r#a", "name": "a", "version": "1.0.0"},
        {"bom-ref": "r#b", "name": "b", "version": "2.0.0"}],
      "dependencies": [{"ref": "path+file:///a/folder#nodelet", "dependsOn": ["r#a", "r#b"]},
        {"ref": "r#b"}]}' >nodelet_bin.cdx.json
    ;;
  *) exit 1 ;;
esac
"#;

/// Runs `cross/third-party.py` in a copy of `cross/`, with stubs. `licences` are files of crates.
fn third_party(licences: &[&str], args: &[&str]) -> (bool, String, String) {
    let tools = Tools::new("", CARGO);
    let folder = &tools.folder;
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    for name in ["third-party.py", "setup.sh", "ziglang.txt"] {
        let copy = folder.write(&format!("project/cross/{name}"), "");
        fs::copy(project.join("cross").join(name), copy).unwrap();
    }
    for file in ["LICENSE", "lib/libunwind/LICENSE.TXT", "lib/libc/musl/COPYRIGHT"] {
        folder.write(tools.zig.join(file).to_str().unwrap(), format!("zig: {file}"));
    }
    folder.write("sysroot/share/doc/rust/licenses/Unicode-3.0.txt", "unicode");
    folder.write("sysroot/lib/rustlib/src/rust/library/stdarch/LICENSE-MIT", "std: MIT");
    for file in licences {
        folder.write(&format!("cargo/registry/src/index/{file}"), format!("text of {file}"));
    }
    let output = tools.run(&folder.path().join("project/cross/third-party.py"), args);
    assert!(!folder.path().join("project/nodelet_bin.cdx.json").exists());
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_release_has_a_licence_text_of_each_crate_or_fails() {
    if !skip::has_tool("python3") {
        return;
    }
    let all = ["a-1.0.0/LICENSE-MIT", "a-1.0.0/LICENSE-APACHE", "hashbrown-0.16.1/LICENSE"];
    let (succeeds, text, error) = third_party(&all, &["licenses", "here"]);
    assert!(succeeds, "{error}");
    for part in [
        "\na 1.0.0 (MIT OR Apache-2.0)\n",
        "\nhashbrown 0.16.1 (MIT)\n",
        "\ntext of a-1.0.0/LICENSE-MIT\n",
        "\ntext of hashbrown-0.16.1/LICENSE\n",
        "\nrust-std 1.2.3 ",
        "\nstd: MIT\n",
        "\nunicode\n",
        "\nzig: lib/libc/musl/COPYRIGHT\n",
        "\nzig: lib/libunwind/LICENSE.TXT\n",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("LICENSE-APACHE"), "of a choice one text is enough: {text}");

    let (succeeds, _, error) = third_party(&all[..2], &["licenses", "here"]);
    assert!(!succeeds);
    assert!(error.contains("hashbrown 0.16.1: no licence text"), "{error}");
}

#[test]
fn an_sbom_has_what_is_linked_and_no_folder_of_the_build_machine() {
    if !skip::has_tool("python3") {
        return;
    }
    let (succeeds, text, error) = third_party(&[], &["sbom", "here"]);
    assert!(succeeds, "{error}");
    let bom: serde_json::Value = serde_json::from_str(&text).unwrap();
    let names: Vec<_> =
        bom["components"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "hashbrown", "rust-std", "zig-musl", "zig-runtime"]);
    assert_eq!(
        bom["dependencies"],
        serde_json::json!([{"ref": "nodelet", "dependsOn": ["r#a"]}]),
        "b is only used by tests"
    );
    assert!(!text.contains("/a/folder"), "{text}");
}
