//! The one list of kernels: entry points of the GPU, names and functions of the host are made from it.

/// Hands the list to a macro: families with the function that they are made of, and in each the kernels with what [`Of`] is
/// given: accesses, activations, whether statistics are given, and whether a tile is one group; and how many accesses are under way at
/// once.
///
/// [`Of`]: super::Of
macro_rules! forward_kernels {
    ($receive:ident) => {
        $receive! {
            "tiles_forward_plain" by forward {
                group: Vectors, Plain, false, true, 2;
                groups: Vectors, Plain, false, false, 2;
                given: Vectors, Plain, true, false, 2;
            }
            "tiles_forward_piecewise" by forward {
                group: Vectors, Piecewise, false, true, 2;
                groups: Vectors, Piecewise, false, false, 2;
                given: Vectors, Piecewise, true, false, 2;
            }
            "tiles_forward" by forward {
                group: Vectors, Any, false, true, 1;
                groups: Vectors, Any, false, false, 1;
                given: Vectors, Any, true, false, 1;
            }
            "tiles_forward_elements" by forward {
                groups: Elements, Any, false, false, 2;
                given: Elements, Any, true, false, 2;
            }
        }
    };
}

/// The list of the backward pass, in the same form.
macro_rules! backward_kernels {
    ($receive:ident) => {
        $receive! {
            "tiles_backward_plain" by backward {
                group: Vectors, Plain, false, true, 2;
                groups: Vectors, Plain, false, false, 2;
                given: Vectors, Plain, true, false, 2;
            }
            "tiles_backward_piecewise" by backward {
                group: Vectors, Piecewise, false, true, 2;
                groups: Vectors, Piecewise, false, false, 2;
                given: Vectors, Piecewise, true, false, 2;
            }
            "tiles_backward" by backward {
                group: Vectors, Any, false, true, 1;
                groups: Vectors, Any, false, false, 1;
                given: Vectors, Any, true, false, 1;
            }
            "tiles_backward_elements" by backward {
                groups: Elements, Any, false, false, 2;
                given: Elements, Any, true, false, 2;
            }
        }
    };
}

pub(crate) use {backward_kernels, forward_kernels};
