//! The entry points of the GPU: one module of kernels each, chosen by `--cfg isonorm_module="…"`.
