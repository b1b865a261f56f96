//! Which CPU this is, and what of it may be used.

use std::sync::OnceLock;

/// Names instructions to do without, with commas between (`vpclmulqdq,avx512f`): to see what is chosen on a CPU that
/// lacks them, or to keep off some that a hypervisor runs slowly. Read once.
const WITHOUT: &str = "HYMCACHE_CPU_WITHOUT";

fn without() -> &'static str {
    static NAMES: OnceLock<String> = OnceLock::new();
    NAMES.get_or_init(|| std::env::var(WITHOUT).unwrap_or_default())
}

fn names(list: &str, feature: &str) -> bool {
    list.split(',').any(|name| name.trim() == feature)
}

/// False for instructions that the environment rules out.
pub(crate) fn may_use(feature: &str) -> bool {
    !names(without(), feature)
}

/// Vendor, family, model, stepping, brand and what is ruled out: what decides which code is fast.
pub(crate) fn model() -> String {
    match without() {
        "" => hardware(),
        list => format!("{} without {list}", hardware()),
    }
}

#[cfg(target_arch = "x86_64")]
fn hardware() -> String {
    let cpuid = raw_cpuid::CpuId::new();
    let vendor = cpuid
        .get_vendor_info()
        .map_or_else(String::new, |v| v.as_str().to_owned());
    let brand = cpuid
        .get_processor_brand_string()
        .map_or_else(String::new, |b| b.as_str().trim().to_owned());
    let number = cpuid.get_feature_info().map_or_else(String::new, |f| {
        format!("{}/{}/{}", f.family_id(), f.model_id(), f.stepping_id())
    });
    format!("{vendor} {number} {brand}")
}

#[cfg(not(target_arch = "x86_64"))]
fn hardware() -> String {
    std::env::consts::ARCH.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_is_ruled_out_by_its_whole_name() {
        assert!(names("vpclmulqdq, avx512f", "avx512f"));
        assert!(!names("vpclmulqdq,avx512f", "pclmulqdq"));
        assert!(!names("", "avx2"));
    }
}
