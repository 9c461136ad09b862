//! The one list of kernels: entry points of the GPU, names and functions of the host are made from it.

/// Hands the list to a macro: families with the module and function that they are made of, and in each the kernels with what [`Of`] is
/// given: accesses, activations, and whose statistics and parameters elements have; and how many accesses are under way at once, or stay in
/// registers.
///
/// [`Of`]: super::Of
macro_rules! forward_kernels {
    ($receive:ident) => {
        $receive! {
            "tiles_forward_plain" by forward::forward {
                group: Vectors, Plain, Group, 2;
                groups: Vectors, Plain, Groups, 2;
                given: Vectors, Plain, Given, 4;
                by_row: Vectors, Plain, ByRow, 1;
                wide: Vectors, Plain, Wide, 1;
            }
            "tiles_forward_piecewise" by forward::forward {
                group: Vectors, Piecewise, Group, 2;
                groups: Vectors, Piecewise, Groups, 2;
                given: Vectors, Piecewise, Given, 4;
                by_row: Vectors, Piecewise, ByRow, 1;
                wide: Vectors, Piecewise, Wide, 1;
            }
            "tiles_forward" by forward::forward {
                group: Vectors, Any, Group, 1;
                groups: Vectors, Any, Groups, 1;
                given: Vectors, Any, Given, 2;
                by_row: Vectors, Any, ByRow, 1;
                wide: Vectors, Any, Wide, 1;
            }
            "tiles_forward_elements" by forward::forward {
                groups: Elements, Any, Groups, 2;
                given: Elements, Any, Given, 8;
                by_row: Elements, Any, ByRow, 1;
                wide: Elements, Any, Wide, 1;
            }
            "tiles_forward_columns_piecewise" by values::values {
                columns: Vectors, Piecewise, Columns, 6;
            }
            "tiles_forward_columns" by values::values {
                columns: Vectors, Any, Columns, 2;
            }
            "tiles_forward_batched_piecewise" by values::values {
                batched: Vectors, Piecewise, Batched, 4;
            }
            "tiles_forward_batched" by values::values {
                batched: Vectors, Any, Batched, 2;
            }
            "tiles_forward_columns_masked" by values::values {
                columns: Vectors, Masked, Columns, 4;
            }
            "tiles_forward_joined_piecewise" by values::values {
                joined: Vectors, Piecewise, Joined, 4;
            }
            "tiles_forward_joined" by values::values {
                joined: Vectors, Any, Joined, 2;
            }
            "tiles_forward_held_piecewise" by held_values::values {
                held: Vectors, Piecewise, Held, 2;
            }
            "tiles_forward_held" by held_values::values {
                held: Vectors, Any, Held, 1;
            }
        }
    };
}

/// The list of the backward pass, in the same form.
macro_rules! backward_kernels {
    ($receive:ident) => {
        $receive! {
            "tiles_backward_plain" by backward::backward {
                group: Vectors, Plain, Group, 2;
                groups: Vectors, Plain, Groups, 2;
                given: Vectors, Plain, Given, 2;
                by_row: Vectors, Plain, ByRow, 1;
                wide: Vectors, Plain, Wide, 1;
            }
            "tiles_backward_piecewise" by backward::backward {
                group: Vectors, Piecewise, Group, 2;
                groups: Vectors, Piecewise, Groups, 2;
                given: Vectors, Piecewise, Given, 2;
                by_row: Vectors, Piecewise, ByRow, 1;
                wide: Vectors, Piecewise, Wide, 1;
            }
            "tiles_backward" by backward::backward {
                group: Vectors, Any, Group, 1;
                groups: Vectors, Any, Groups, 1;
                given: Vectors, Any, Given, 1;
                by_row: Vectors, Any, ByRow, 1;
                wide: Vectors, Any, Wide, 1;
            }
            "tiles_backward_elements" by backward::backward {
                groups: Elements, Any, Groups, 2;
                given: Elements, Any, Given, 2;
                by_row: Elements, Any, ByRow, 1;
                wide: Elements, Any, Wide, 1;
            }
            "tiles_backward_masked" by backward::backward {
                group: Vectors, Masked, Group, 2;
                groups: Vectors, Masked, Groups, 2;
                given: Vectors, Masked, Given, 2;
            }
            "tiles_backward_columns_plain" by gradients::gradients {
                columns: Vectors, Plain, Columns, 3;
            }
            "tiles_backward_columns_piecewise" by gradients::gradients {
                columns: Vectors, Piecewise, Columns, 1;
            }
            "tiles_backward_columns" by gradients::gradients {
                columns: Vectors, Any, Columns, 1;
            }
            "tiles_backward_batched_plain" by gradients::gradients {
                batched: Vectors, Plain, Batched, 3;
            }
            "tiles_backward_batched_piecewise" by gradients::gradients {
                batched: Vectors, Piecewise, Batched, 1;
            }
            "tiles_backward_batched" by gradients::gradients {
                batched: Vectors, Any, Batched, 1;
            }
            "tiles_backward_columns_masked" by gradients::gradients {
                columns: Vectors, Masked, Columns, 3;
            }
            "tiles_backward_joined_piecewise" by gradients::gradients {
                joined: Vectors, Piecewise, Joined, 1;
            }
            "tiles_backward_joined" by gradients::gradients {
                joined: Vectors, Any, Joined, 1;
            }
            "tiles_backward_columns_added" by gradients::gradients {
                columns: Vectors, Added, Columns, 1;
            }
            "tiles_backward_columns_result" by gradients::gradients {
                columns: Vectors, OfResult, Columns, 2;
            }
            "tiles_backward_held_plain" by held_gradients::gradients {
                held: Vectors, Plain, Held, 2;
            }
            "tiles_backward_held" by held_gradients::gradients {
                held: Vectors, Any, Held, 1;
            }
            "tiles_backward_held_masked" by held_gradients::gradients {
                held: Vectors, Masked, Held, 2;
            }
            "tiles_backward_held_added" by held_gradients::gradients {
                held: Vectors, Added, Held, 1;
            }
        }
    };
}

pub(crate) use {backward_kernels, forward_kernels};
