//! `release-mirror BINARY DIR`: serves a signed release of the terraform or tofu at BINARY, in the
//! official layout, until it is killed. The key goes to DIR. For machines without a way to the release
//! sites: `scripts/demo` installs from it.

use std::io::Write as _;
use std::path::Path;

use support::release_mirror::{ReleaseMirror, identify};

fn main() {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let [binary, dir] = args.as_slice() else {
        eprintln!("usage: release-mirror BINARY DIR");
        std::process::exit(64);
    };
    let (binary, dir) = (Path::new(binary), Path::new(dir));
    let (tool, version) = identify(binary);
    let mirror = ReleaseMirror::start();
    mirror.add(tool, &version, &std::fs::read(binary).unwrap());
    let keyring = dir.join("keyring.asc");
    std::fs::copy(mirror.keyring(), &keyring).unwrap();
    let mut stdout = std::io::stdout();
    let lines = format!("URL {}\nKEYRING {}\n", mirror.url(tool), keyring.display());
    stdout.write_all(lines.as_bytes()).and_then(|()| stdout.flush()).unwrap();
    loop {
        std::thread::park();
    }
}
