//! The modules that are built, and for which GPUs.

/// What the compiler is told to compile for.
pub struct Target {
    /// The oldest GPU that runs it.
    pub cpu: &'static str,
    /// The version of PTX, which the driver must know.
    pub ptx: &'static str,
}

/// Ampere and everything after it.
const SM_80: Target = Target {
    cpu: "sm_80",
    ptx: "ptx78",
};

/// Hopper and after: clusters, bulk copies.
const SM_90: Target = Target {
    cpu: "sm_90",
    ptx: "ptx80",
};

/// A family of kernels for one element type.
pub struct Module {
    /// As `--cfg isonorm_module` has it.
    pub name: &'static str,
    pub target: Target,
    /// Threads of a block, at most; the assembler divides the registers for that many.
    pub max_threads: u32,
    /// Whether the text is kept; otherwise the module exists to be looked at.
    pub committed: bool,
}

const fn rows_forward(name: &'static str) -> Module {
    Module {
        name,
        target: SM_80,
        max_threads: 512,
        committed: true,
    }
}

/// Every module.
pub const MODULES: [Module; 4] = [
    rows_forward("rows_forward_f32"),
    rows_forward("rows_forward_f16"),
    rows_forward("rows_forward_bf16"),
    // Each function of `simt` once, so that all of them are seen by the assembler.
    Module {
        name: "simt",
        target: SM_90,
        max_threads: 512,
        committed: false,
    },
];
