//! Coefficients of the polynomials.
