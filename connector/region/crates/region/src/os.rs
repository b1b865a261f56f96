//! What the region needs of Linux: one file per thing.

pub mod clock;
pub mod file;
pub mod fork;
pub mod host;
pub mod lock;
pub mod map;
pub mod sigbus;
