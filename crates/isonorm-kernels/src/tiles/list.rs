//! The one list of kernels: entry points of the GPU, names and functions of the host are made from it.

/// Hands the list to a macro: families with the function that they are made of, and in each the kernels with what [`Of`] is
/// given: accesses, activations, and whose statistics and parameters elements have; and how many accesses are under way at once, or stay in
/// registers.
///
/// [`Of`]: super::Of
macro_rules! forward_kernels {
    ($receive:ident) => {
        $receive! {
            "tiles_forward_plain" by forward {
                group: Vectors, Plain, Group, 2;
                groups: Vectors, Plain, Groups, 2;
                given: Vectors, Plain, Given, 2;
                by_row: Vectors, Plain, ByRow, 1;
                wide: Vectors, Plain, Wide, 1;
            }
            "tiles_forward_piecewise" by forward {
                group: Vectors, Piecewise, Group, 2;
                groups: Vectors, Piecewise, Groups, 2;
                given: Vectors, Piecewise, Given, 2;
                by_row: Vectors, Piecewise, ByRow, 1;
                wide: Vectors, Piecewise, Wide, 1;
            }
            "tiles_forward" by forward {
                group: Vectors, Any, Group, 1;
                groups: Vectors, Any, Groups, 1;
                given: Vectors, Any, Given, 1;
                by_row: Vectors, Any, ByRow, 1;
                wide: Vectors, Any, Wide, 1;
            }
            "tiles_forward_elements" by forward {
                groups: Elements, Any, Groups, 2;
                given: Elements, Any, Given, 2;
                by_row: Elements, Any, ByRow, 1;
                wide: Elements, Any, Wide, 1;
            }
            "tiles_forward_columns_piecewise" by values {
                columns: Vectors, Piecewise, Columns, 6;
            }
            "tiles_forward_columns" by values {
                columns: Vectors, Any, Columns, 2;
            }
            "tiles_forward_batched_piecewise" by values {
                batched: Vectors, Piecewise, Batched, 4;
            }
            "tiles_forward_batched" by values {
                batched: Vectors, Any, Batched, 2;
            }
            "tiles_forward_columns_masked" by values {
                columns: Vectors, Masked, Columns, 4;
            }
            "tiles_forward_joined_piecewise" by values {
                joined: Vectors, Piecewise, Joined, 4;
            }
        }
    };
}

/// The list of the backward pass, in the same form.
macro_rules! backward_kernels {
    ($receive:ident) => {
        $receive! {
            "tiles_backward_plain" by backward {
                group: Vectors, Plain, Group, 2;
                groups: Vectors, Plain, Groups, 2;
                given: Vectors, Plain, Given, 2;
                by_row: Vectors, Plain, ByRow, 1;
                wide: Vectors, Plain, Wide, 1;
            }
            "tiles_backward_piecewise" by backward {
                group: Vectors, Piecewise, Group, 2;
                groups: Vectors, Piecewise, Groups, 2;
                given: Vectors, Piecewise, Given, 2;
                by_row: Vectors, Piecewise, ByRow, 1;
                wide: Vectors, Piecewise, Wide, 1;
            }
            "tiles_backward" by backward {
                group: Vectors, Any, Group, 1;
                groups: Vectors, Any, Groups, 1;
                given: Vectors, Any, Given, 1;
                by_row: Vectors, Any, ByRow, 1;
                wide: Vectors, Any, Wide, 1;
            }
            "tiles_backward_elements" by backward {
                groups: Elements, Any, Groups, 2;
                given: Elements, Any, Given, 2;
                by_row: Elements, Any, ByRow, 1;
                wide: Elements, Any, Wide, 1;
            }
            "tiles_backward_masked" by backward {
                group: Vectors, Masked, Group, 2;
                groups: Vectors, Masked, Groups, 2;
                given: Vectors, Masked, Given, 2;
            }
            "tiles_backward_columns_plain" by gradients {
                columns: Vectors, Plain, Columns, 3;
            }
            "tiles_backward_columns_piecewise" by gradients {
                columns: Vectors, Piecewise, Columns, 1;
            }
            "tiles_backward_columns" by gradients {
                columns: Vectors, Any, Columns, 1;
            }
            "tiles_backward_batched_plain" by gradients {
                batched: Vectors, Plain, Batched, 3;
            }
            "tiles_backward_batched_piecewise" by gradients {
                batched: Vectors, Piecewise, Batched, 1;
            }
            "tiles_backward_batched" by gradients {
                batched: Vectors, Any, Batched, 1;
            }
            "tiles_backward_columns_masked" by gradients {
                columns: Vectors, Masked, Columns, 3;
            }
            "tiles_backward_joined_piecewise" by gradients {
                joined: Vectors, Piecewise, Joined, 1;
            }
            "tiles_backward_columns_added" by gradients {
                columns: Vectors, Added, Columns, 1;
            }
            "tiles_backward_columns_result" by gradients {
                columns: Vectors, OfResult, Columns, 2;
            }
        }
    };
}

pub(crate) use {backward_kernels, forward_kernels};
