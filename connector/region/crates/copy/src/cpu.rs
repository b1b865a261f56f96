//! Which CPU this is.

/// Vendor, family, model, stepping and brand: what decides which code is fast.
#[cfg(target_arch = "x86_64")]
pub(crate) fn model() -> String {
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
pub(crate) fn model() -> String {
    std::env::consts::ARCH.to_owned()
}
