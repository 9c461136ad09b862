//! isonorm on the command line.
