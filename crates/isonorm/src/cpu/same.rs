//! Generic code that has found out which types it is compiled for: what those alone can do needs their names.

use std::any::TypeId;

/// The elements, if they are of type `B`.
#[inline(always)]
pub(super) fn same<A: 'static, B: 'static>(elements: &[A]) -> Option<&[B]> {
    // SAFETY: the types are the same.
    (TypeId::of::<A>() == TypeId::of::<B>()).then(|| unsafe { &*(std::ptr::from_ref(elements) as *const [B]) })
}

/// The elements, if they are of type `B`.
#[inline(always)]
pub(super) fn same_mut<A: 'static, B: 'static>(elements: &mut [A]) -> Option<&mut [B]> {
    // SAFETY: the types are the same.
    (TypeId::of::<A>() == TypeId::of::<B>()).then(|| unsafe { &mut *(std::ptr::from_mut(elements) as *mut [B]) })
}
