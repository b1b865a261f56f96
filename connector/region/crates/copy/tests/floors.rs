//! The floors of the copy benchmark: repeated measurements forgive a busy machine, not a slow kernel.

use std::process::Command;

/// The benchmark in this test's own profile: built by `cargo test` where that builds examples, else now.
fn copybench(options: &str) -> Command {
    let test = std::env::current_exe().expect("this test has a path");
    let release = test.ancestors().any(|folder| folder.ends_with("release"));
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "run",
        "--quiet",
        "-p",
        "hymcache-copy",
        "--example",
        "copybench",
    ]);
    cargo.args(release.then_some("--release"));
    cargo.arg("--").args(options.split(' '));
    cargo
}

#[test]
fn a_kernel_that_copies_everything_four_times_misses_its_floor_in_every_repetition() {
    let options = "--floors --cpu-clock --rounds 5 --only put-fresh --sizes 4096 --slow 4 --json";
    let ran = copybench(options).output().expect("cargo runs");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(3), "{said}");
    assert!(said.contains("put-fresh 4096 KiB: at best 0."), "{said}");
    assert!(said.contains("in 4 measurements"), "{said}");
}
