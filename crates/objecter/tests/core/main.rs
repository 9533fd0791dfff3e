//! The core alone: what it sends when, with a toy monitor and toy OSDs around it.

mod bed;

mod hostile;
mod lingers;
mod maps;
mod operations;
mod services;
