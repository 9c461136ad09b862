//! isonorm on the command line.
fn main() {}
