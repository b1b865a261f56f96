//! Instructions ruled out by the environment. Alone in its program: the variable is read once.

use hymcache_copy::{Choice, bare, kernels};

#[test]
fn kernels_and_copies_with_instructions_that_are_ruled_out_do_not_run() {
    // SAFETY: the program's only test; no other thread reads the environment yet.
    unsafe { std::env::set_var("HYMCACHE_CPU_WITHOUT", "vpclmulqdq, avx512f") };
    let mut names: Vec<&str> = kernels().iter().map(|kernel| kernel.name).collect();
    names.extend(bare::copies().iter().map(|copy| copy.name));
    let ruled_out = |name: &&&str| name.contains("vpclmul") || name.contains("512");
    assert_eq!(names.iter().find(ruled_out), None, "{names:?}");
    assert!(!Choice::guess().describe().contains("vpclmul"));
}
