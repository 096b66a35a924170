#!/usr/bin/env python3
"""What a static binary contains of others, from what cross/build.sh built it with:

  cross/third-party.py licenses TARGET...   prints the licence texts
  cross/third-party.py sbom TARGET          prints a CycloneDX SBOM, as JSON

Fails if a package has no licence text. SOURCE_DATE_EPOCH is the date of the SBOM.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SBOM_TOOL = "0.5.9"


def output(*command, **variables):
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | variables, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.strip()


def crates(manifest, target, *flags):
    """The linked crates of the registry, each as its name, version and licence."""
    tree = output(
        "cargo", "tree", "--locked", "--manifest-path", str(manifest), "--target", target,
        "--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}|{l}", *flags,
        # Manifests of std have unstable features.
        RUSTC_BOOTSTRAP="1",
    )  # fmt: skip
    found = set()
    for line in tree.splitlines():
        package, license = line.removesuffix(" (*)").split("|")
        name, version, *path = package.split(" ", 2)
        if not path:
            found.add((name, version.removeprefix("v"), license.replace("/", " OR ")))
    return found


def linked(target):
    """All linked crates: nodelet's and, with the features of cross/build.sh, std's."""
    std = SYSROOT / "lib/rustlib/src/rust/library/std/Cargo.toml"
    features = ["--no-default-features", "--features", "optimize_for_size"]
    return crates(ROOT / "Cargo.toml", target) | crates(std, target, *features)


def others():
    """What else is linked: name, version, licence, files with its texts."""
    library = SYSROOT / "lib/rustlib/src/rust/library"
    rust = output("rustc", "--version").split()[1]
    unicode = SYSROOT / "share/doc/rust/licenses/Unicode-3.0.txt"
    zig = Path(output("cross/setup.sh")).parent
    version = zig.parent.name.removeprefix("ziglang-")
    runtime = [zig / "LICENSE", zig / "lib/libunwind/LICENSE.TXT"]
    return [
        ("rust-std", rust, "(MIT OR Apache-2.0) AND Unicode-3.0", [*texts(library), unicode]),
        ("zig-musl", version, "MIT", [zig / "lib/libc/musl/COPYRIGHT"]),
        ("zig-runtime", version, "MIT AND Apache-2.0 WITH LLVM-exception", runtime),
    ]


def texts(folder):
    """The licence files below a folder. Of a choice in one folder, the MIT licence."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    files = [path for path in files if "license" in str(path.relative_to(folder)).lower()]
    mit = {path.parent for path in files if "mit" in path.name.lower()}
    return [path for path in files if path.parent not in mit or "apache" not in path.name.lower()]


def licenses(targets):
    """Each text once, below the packages that have it."""
    registry = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo") / "registry/src"
    packages = [(name, version, license, files) for name, version, license, files in others()]
    for name, version, license in sorted(set().union(*map(linked, targets))):
        folders = sorted(registry.glob(f"*/{name}-{version}"))
        packages.append((name, version, license, texts(folders[0]) if folders else []))
    by_text = {}
    for name, version, license, files in packages:
        if not files:
            sys.exit(f"cross/third-party.py: {name} {version}: no licence text in its package")
        for file in files:
            text = file.read_text().strip("\n")
            # A dictionary, because a package may have a text twice.
            by_text.setdefault(text, {})[f"{name} {version} ({license})"] = None
    for text, names in by_text.items():
        print("=" * 80, *names, "-" * 80, text, "", sep="\n")


def sbom(target):
    """The SBOM of cargo-cyclonedx, without what only tests use and without this folder's path, and
    with std, musl and zig's runtime."""
    install = ["cargo", "install", "cargo-cyclonedx", "--version", SBOM_TOOL, "--locked", "--quiet"]
    found = subprocess.run(["cargo", "cyclonedx", "--version"], capture_output=True, text=True)
    if found.stdout.split()[-1:] != [SBOM_TOOL]:
        # Without optimization: compiling it takes far longer than running it.
        output(*install, "--debug", CARGO_PROFILE_DEV_DEBUG="none")
    written = ROOT / "nodelet_bin.cdx.json"
    output(
        "cargo", "cyclonedx", "--quiet", "--format", "json", "--spec-version", "1.5",
        "--describe", "binaries", "--no-build-deps", "--target", target,
    )  # fmt: skip
    bom = json.loads(written.read_text())
    written.unlink()

    crates = linked(target)
    have = {(c["name"], c["version"]) for c in bom["components"]}
    bom["components"] = [
        c for c in bom["components"] if (c["name"], c["version"]) in {(n, v) for n, v, _ in crates}
    ]
    for name, version, license in sorted(crates):
        if (name, version) not in have:
            bom["components"].append(component(name, version, license, "cargo"))
    bom["components"] += [component(n, v, license, "generic") for n, v, license, _ in others()]
    product = bom["metadata"]["component"]
    refs = {c["bom-ref"] for c in bom["components"]} | {product["bom-ref"]}
    bom["dependencies"] = [d for d in bom["dependencies"] if d["ref"] in refs]
    for dependency in bom["dependencies"]:
        if "dependsOn" in dependency:
            dependency["dependsOn"] = [r for r in dependency["dependsOn"] if r in refs]
    text = json.dumps(bom, indent=2, ensure_ascii=False)
    print(text.replace(json.dumps(product["bom-ref"]), '"nodelet"'))


def component(name, version, license, kind):
    purl = f"pkg:{kind}/{name}@{version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "scope": "required",
        "licenses": [{"expression": license}],
        "purl": purl,
    }


SYSROOT = Path(output("rustc", "--print", "sysroot"))
match sys.argv[1:]:
    case ["licenses", *targets] if targets:
        licenses(targets)
    case ["sbom", target]:
        sbom(target)
    case _:
        sys.exit(__doc__.strip())
