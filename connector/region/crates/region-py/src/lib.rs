//! The compiled half of `hymcache.region`; private to it.

use pyo3::prelude::*;

/// Native half of `hymcache.region`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
