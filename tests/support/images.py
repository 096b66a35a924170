#!/usr/bin/env python3
"""Writes an OCI archive of N images: images.py N FILE. Fewer than 100 have different sizes."""

import hashlib
import io
import json
import sys
import tarfile

count, path = int(sys.argv[1]), sys.argv[2]
blobs = {}


def descriptor(kind, data, **more):
    digest = hashlib.sha256(data).hexdigest()
    blobs[digest] = data
    kind = f"application/vnd.oci.image.{kind}"
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data), **more}


def add(tar, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


manifests = []
for n in range(count):
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        add(tar, "file", b"%d" % n + b"x" * (20_000 * n if count < 100 else 0))
    layer = descriptor("layer.v1.tar", layer.getvalue())
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    config = descriptor("config.v1+json", json.dumps(config).encode())
    manifest = {"schemaVersion": 2, "config": config, "layers": [layer]}
    name = {"io.containerd.image.name": f"registry.lab/app-{n}:1"}
    manifest = json.dumps(manifest).encode()
    manifests.append(descriptor("manifest.v1+json", manifest, annotations=name))

with tarfile.open(path, "w") as tar:
    add(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
    index = {"schemaVersion": 2, "manifests": manifests}
    add(tar, "index.json", json.dumps(index).encode())
    for digest, data in blobs.items():
        add(tar, f"blobs/sha256/{digest}", data)
