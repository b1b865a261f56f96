//! The compiled half of `hymcache.region`; private to it.
//!
//! Nothing here decides anything about regions: arguments are checked and turned into the core's types, the interpreter
//! lock is released where a call is long, errors become exceptions.

mod advice;
mod arguments;
mod bare;
mod buffers;
mod inspect;
mod keys;
mod namespace;
mod pages;
mod refs;
mod region;
mod view;

use pyo3::prelude::*;

/// Native half of `hymcache.region`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    hymcache_region::os::fork::watch(); // not only at the first attach: a fork may be under way then
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add(
        "RegionError",
        module.py().get_type::<arguments::RegionError>(),
    )?;
    module.add_class::<region::Region>()?;
    module.add_class::<namespace::Namespace>()?;
    module.add_class::<view::View>()?;
    module.add_class::<pages::Pages>()?;
    module.add_class::<pages::Blocks>()?;
    module.add_function(wrap_pyfunction!(region::format, module)?)?;
    module.add_class::<bare::Window>()?;
    module.add_function(wrap_pyfunction!(bare::bare_copies, module)?)
}
