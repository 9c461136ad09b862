//! From keys to kernels on the host: their names in a module, and the functions to interpret.

use super::Data;
use super::forward::{Activate, Args, Key, forward};

impl Key {
    /// All keys that there are kernels for.
    pub fn all() -> impl Iterator<Item = Key> {
        let teams = [false, true].map(|block| Key::VECTORS.map(|vectors| (block, vectors)));
        let sizes = teams.into_iter().flatten();
        sizes.flat_map(|(block, vectors)| {
            [true, false].map(|centred| Key {
                centred,
                block,
                vectors,
            })
        })
    }

    /// The name of the entry point, in the module for elements of type `dtype` (`f32`, `f16`, `bf16`).
    pub fn name(&self, dtype: &str) -> String {
        let op = if self.centred { "layer" } else { "rms" };
        let team = if self.block { "block" } else { "warp" };
        format!("rows_forward_{dtype}_{op}_{team}_v{}", self.vectors)
    }

    /// Runs the kernel as one thread of the interpreter.
    ///
    /// # Safety
    ///
    /// As for [`forward`]; what the launch was not given is a fault there.
    ///
    /// # Panics
    ///
    /// For a number of vectors that there is no kernel for.
    #[rustfmt::skip]
    pub unsafe fn interpret<T: Data, A: Activate>(&self, args: &Args<T>) {
        // SAFETY: the caller's.
        unsafe {
            match (self.vectors, self.centred, self.block) {
                (1, true, true) => forward::<T, A, 1, true, true>(args),
                (1, true, false) => forward::<T, A, 1, true, false>(args),
                (1, false, true) => forward::<T, A, 1, false, true>(args),
                (1, false, false) => forward::<T, A, 1, false, false>(args),
                (2, true, true) => forward::<T, A, 2, true, true>(args),
                (2, true, false) => forward::<T, A, 2, true, false>(args),
                (2, false, true) => forward::<T, A, 2, false, true>(args),
                (2, false, false) => forward::<T, A, 2, false, false>(args),
                (4, true, true) => forward::<T, A, 4, true, true>(args),
                (4, true, false) => forward::<T, A, 4, true, false>(args),
                (4, false, true) => forward::<T, A, 4, false, true>(args),
                (4, false, false) => forward::<T, A, 4, false, false>(args),
                (vectors, ..) => panic!("{vectors} vectors a thread, expected one of {:?}", Key::VECTORS),
            }
        }
    }
}
