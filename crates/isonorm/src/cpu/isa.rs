//! Which vector instructions there are, detected once, and the one place where a kernel is compiled for each.
//!
//! Kernels are plain Rust over fixed groups of lanes, written so that the compiler vectorizes them; compiled inside a
//! function that enables wider instructions, the same source becomes AVX2 or AVX-512 code. Sums have a fixed number of
//! lanes and every fused multiply-add is named, so the bits are the same for every [`Isa`].

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// Vector instructions that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// What every processor of this architecture has: SSE2 on x86-64 (where a fused multiply-add is a slow library call),
    /// NEON on 64-bit Arm.
    Baseline,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, CD, DQ and VL.
    Avx512,
}

impl Isa {
    /// All, narrowest first.
    pub const ALL: [Isa; 3] = [Isa::Baseline, Isa::Avx2, Isa::Avx512];

    /// The widest that this machine has.
    pub fn best() -> Isa {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| Isa::ALL.into_iter().rev().find(|i| i.detect()).unwrap_or(Isa::Baseline))
    }

    /// Whether this machine has it.
    pub fn is_available(self) -> bool {
        self <= Isa::best()
    }

    #[cfg(target_arch = "x86_64")]
    fn detect(self) -> bool {
        let avx2 = || {
            is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
        };
        match self {
            Isa::Baseline => true,
            Isa::Avx2 => avx2(),
            Isa::Avx512 => {
                avx2()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512cd")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn detect(self) -> bool {
        self == Isa::Baseline
    }

    /// These instructions, or the widest that this machine has.
    pub(super) fn vectors(self) -> Vectors {
        let isa = self.min(Isa::best());
        Vectors {
            isa,
            #[cfg(target_arch = "x86_64")]
            bf16: isa == Isa::Avx512 && is_x86_feature_detected!("avx512bf16"),
        }
    }
}

/// Instructions that this machine was found to have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vectors {
    isa: Isa,
    /// Whether they round to bf16 (AVX512_BF16).
    #[cfg(target_arch = "x86_64")]
    bf16: bool,
}

impl Vectors {
    /// Which they are.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn isa(self) -> Isa {
        self.isa
    }

    /// Whether they round to bf16.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn round_bf16(self) -> bool {
        self.bf16
    }

    /// Runs a kernel compiled for these instructions.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2")]
        fn avx2<K: Kernel>(kernel: K) -> K::Output {
            kernel.run()
        }
        #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,avx512f,avx512bw,avx512cd,avx512dq,avx512vl")]
        fn avx512<K: Kernel>(kernel: K) -> K::Output {
            kernel.run()
        }
        #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512bf16")]
        fn avx512_bf16<K: Kernel>(kernel: K) -> K::Output {
            kernel.run()
        }
        match self.isa {
            Isa::Baseline => kernel.run(),
            // SAFETY: `best` detected these features, and `vectors` capped to it.
            Isa::Avx2 => unsafe { avx2(kernel) },
            // SAFETY: as above; `vectors` detected the one that is not part of `isa`.
            Isa::Avx512 if K::STORES_16_BITS && self.bf16 => unsafe { avx512_bf16(kernel) },
            // SAFETY: as above.
            Isa::Avx512 => unsafe { avx512(kernel) },
        }
    }

    /// Runs a kernel.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline]
    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run()
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Isa::Baseline if cfg!(target_arch = "x86_64") => "sse2",
            Isa::Baseline if cfg!(target_arch = "aarch64") => "neon",
            Isa::Baseline => "scalar",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        })
    }
}

impl FromStr for Isa {
    type Err = String;

    fn from_str(s: &str) -> Result<Isa, String> {
        let names = || Isa::ALL.map(|i| i.to_string()).join(", ");
        Isa::ALL
            .into_iter()
            .find(|i| i.to_string() == s)
            .ok_or_else(|| format!("unknown isa {s:?}; expected one of {}", names()))
    }
}

/// A loop nest that is compiled once for each [`Isa`]: a few thousand elements' work, so that calling it costs nothing. `run`,
/// and all it calls, must be `#[inline(always)]`: only inlined code is compiled for the caller's instructions.
pub(super) trait Kernel {
    /// What it returns.
    type Output;

    /// Whether it stores results of 16 bits, one strip after the other: then it is also compiled for the instructions that round
    /// these.
    const STORES_16_BITS: bool = false;

    /// Does the work.
    fn run(self) -> Self::Output;
}
