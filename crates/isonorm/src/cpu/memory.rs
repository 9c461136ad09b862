//! The memory that tasks share: raw pointers behind a few methods, so that the reasons why that is sound stand in one place.
//!
//! Arguments were checked before: lengths fit the geometry, types are right, addresses aligned, outputs overlap nothing but,
//! in place, their own input. Tasks write disjoint elements. A task that works in place reads a chunk into registers or a
//! local buffer before it writes that chunk.

use std::marker::PhantomData;

use half::{bf16, f16};
use isonorm_math::{Element, Real};

use crate::plan::Region;
use crate::{DType, Scalar, View, ViewMut, Workspace};

/// Bytes of a cache line.
pub(super) const LINE_BYTES: usize = 64;

/// Elements that tasks read.
#[derive(Clone, Copy)]
pub(super) struct Source<'a, T> {
    ptr: *const T,
    len: usize,
    lifetime: PhantomData<&'a [T]>,
}

/// Elements that tasks write, each by one task.
#[derive(Clone, Copy)]
pub(super) struct Dest<'a, T> {
    ptr: *mut T,
    len: usize,
    lifetime: PhantomData<&'a mut [T]>,
}

// SAFETY: reads of plain numbers; see the module for why no task reads what another writes.
unsafe impl<T: Sync> Send for Source<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Source<'_, T> {}
// SAFETY: tasks write disjoint elements.
unsafe impl<T: Send> Send for Dest<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Dest<'_, T> {}

impl<T> Source<'_, T> {
    /// Elements `start..start + len`.
    #[inline(always)]
    pub(super) fn slice(&self, start: usize, len: usize) -> &[T] {
        assert!(start <= self.len && len <= self.len - start);
        // SAFETY: in bounds (just checked) of initialized elements that live for 'a; nobody writes them while this borrow
        // lives: out of place nobody at all, in place only this task, and it drops the borrow first.
        unsafe { std::slice::from_raw_parts(self.ptr.add(start), len) }
    }
}

impl<'a> Source<'a, u8> {
    /// The view's bytes, whatever its type.
    pub(super) fn bytes(view: View<'a>) -> Source<'a, u8> {
        Source {
            ptr: view.as_ptr(),
            len: view.len() * view.dtype().bytes(),
            lifetime: PhantomData,
        }
    }
}

impl<'a, T: Element> Source<'a, T> {
    /// The view's elements, whose type the caller has matched with `T`.
    pub(super) fn new(view: View<'a>) -> Source<'a, T> {
        assert_eq!(
            size_of::<T>(),
            view.dtype().bytes(),
            "an element type was mistaken for another"
        );
        Source {
            ptr: view.as_ptr().cast(),
            len: view.len(),
            lifetime: PhantomData,
        }
    }

    /// Where an element would be, which need not exist.
    #[inline(always)]
    pub(super) fn address(&self, index: usize) -> *const T {
        self.ptr.wrapping_add(index)
    }

    /// One element in the accumulator's type.
    #[inline(always)]
    pub(super) fn at(&self, index: usize) -> T::Acc {
        self.slice(index, 1)[0].to_acc()
    }
}

impl<T> Dest<'_, T> {
    /// Elements `start..start + len`.
    ///
    /// # Safety
    /// No other task touches these elements, and this task holds no other borrow of them.
    #[inline(always)]
    #[expect(
        clippy::mut_from_ref,
        reason = "tasks share the destination and write disjoint elements"
    )]
    pub(super) unsafe fn slice(&self, start: usize, len: usize) -> &mut [T] {
        assert!(start <= self.len && len <= self.len - start);
        // SAFETY: in bounds (just checked), alive for 'a, and exclusive by this function's contract.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.add(start), len) }
    }
}

impl<'a> Dest<'a, u8> {
    /// The view's bytes, whatever its type.
    pub(super) fn bytes(view: ViewMut<'a>) -> Dest<'a, u8> {
        Dest {
            ptr: view.as_ptr(),
            len: view.len() * view.dtype().bytes(),
            lifetime: PhantomData,
        }
    }
}

impl<'a, T: Element> Dest<'a, T> {
    /// No elements.
    pub(super) const NONE: Dest<'a, T> = Dest {
        ptr: std::ptr::null_mut(),
        len: 0,
        lifetime: PhantomData,
    };

    /// The view's elements, whose type the caller has matched with `T`.
    pub(super) fn new(view: ViewMut<'a>) -> Dest<'a, T> {
        assert_eq!(
            size_of::<T>(),
            view.dtype().bytes(),
            "an element type was mistaken for another"
        );
        Dest {
            ptr: view.as_ptr().cast(),
            len: view.len(),
            lifetime: PhantomData,
        }
    }

    /// How many elements before this one lie in the same cache line (fewer than fit one, wherever that may begin).
    #[inline(always)]
    pub(super) fn past_line(&self, index: usize) -> usize {
        (self.ptr.addr() / size_of::<T>()).wrapping_add(index) % (LINE_BYTES / size_of::<T>())
    }

    /// The same elements, to be read (in place).
    pub(super) fn as_source(&self) -> Source<'a, T> {
        Source {
            ptr: self.ptr,
            len: self.len,
            lifetime: PhantomData,
        }
    }
}

/// A few numbers (statistics, parameters) of a type known at run time; read and written one by one.
#[derive(Clone, Copy)]
pub(super) struct Numbers<'a> {
    ptr: *mut u8,
    len: usize,
    dtype: DType,
    lifetime: PhantomData<&'a mut [u8]>,
}

// SAFETY: each number is written by one task.
unsafe impl Send for Numbers<'_> {}
// SAFETY: as above.
unsafe impl Sync for Numbers<'_> {}

impl<'a> Numbers<'a> {
    /// Numbers that are only read.
    pub(super) fn read_only(view: View<'a>) -> Numbers<'a> {
        Numbers {
            ptr: view.as_ptr().cast_mut(),
            len: view.len(),
            dtype: view.dtype(),
            lifetime: PhantomData,
        }
    }

    /// Numbers that are read and written.
    pub(super) fn new(view: ViewMut<'a>) -> Numbers<'a> {
        Numbers {
            ptr: view.as_ptr(),
            len: view.len(),
            dtype: view.dtype(),
            lifetime: PhantomData,
        }
    }

    /// Sets all to zero.
    pub(super) fn clear(self) {
        for index in 0..self.len {
            // SAFETY: taken by value, before or after all tasks.
            unsafe { self.set(index, 0.0) };
        }
    }

    /// The number at `index`.
    pub(super) fn get(&self, index: usize) -> f64 {
        assert!(index < self.len);
        // SAFETY: in bounds (just checked), initialized, of type `dtype` and aligned for it (checked with the arguments);
        // a number is touched by one task only.
        unsafe {
            match self.dtype {
                DType::F16 => self.ptr.cast::<f16>().add(index).read().to_f64(),
                DType::Bf16 => self.ptr.cast::<bf16>().add(index).read().to_f64(),
                DType::F32 => f64::from(self.ptr.cast::<f32>().add(index).read()),
                DType::F64 => self.ptr.cast::<f64>().add(index).read(),
            }
        }
    }

    /// Sets the number at `index`, rounded to its type.
    ///
    /// # Safety
    /// The numbers were made by [`Numbers::new`], and no other task touches this one.
    pub(super) unsafe fn set(&self, index: usize, value: f64) {
        assert!(index < self.len);
        // SAFETY: in bounds (just checked), aligned and of type `dtype`; exclusive by this function's contract.
        unsafe {
            match self.dtype {
                DType::F16 => self.ptr.cast::<f16>().add(index).write(Scalar::from_f64(value)),
                DType::Bf16 => self.ptr.cast::<bf16>().add(index).write(Scalar::from_f64(value)),
                DType::F32 => self.ptr.cast::<f32>().add(index).write(value as f32),
                DType::F64 => self.ptr.cast::<f64>().add(index).write(value),
            }
        }
    }

    /// The numbers from `start` on.
    #[inline(always)]
    pub(super) fn get_all(&self, start: usize, values: &mut [f64]) {
        if self.dtype == DType::F32 {
            assert!(start <= self.len && values.len() <= self.len - start);
            for (i, value) in values.iter_mut().enumerate() {
                // SAFETY: as in `get`.
                *value = f64::from(unsafe { self.ptr.cast::<f32>().add(start + i).read() });
            }
        } else {
            for (i, value) in values.iter_mut().enumerate() {
                *value = self.get(start + i);
            }
        }
    }

    /// Sets the numbers from `start` on, each rounded to its type.
    ///
    /// # Safety
    /// The numbers were made by [`Numbers::new`], and no other task touches these.
    #[inline(always)]
    pub(super) unsafe fn set_all(&self, start: usize, values: &[f64]) {
        if self.dtype == DType::F32 {
            assert!(start <= self.len && values.len() <= self.len - start);
            for (i, value) in values.iter().enumerate() {
                // SAFETY: as in `set`.
                unsafe { self.ptr.cast::<f32>().add(start + i).write(*value as f32) };
            }
        } else {
            for (i, value) in values.iter().enumerate() {
                // SAFETY: this function's contract.
                unsafe { self.set(start + i, *value) };
            }
        }
    }
}

/// The workspace, handed out by regions of the plan.
#[derive(Clone, Copy)]
pub(super) struct Scratch<'a> {
    ptr: *mut u8,
    bytes: usize,
    lifetime: PhantomData<&'a mut [u8]>,
}

// SAFETY: tasks take disjoint parts.
unsafe impl Send for Scratch<'_> {}
// SAFETY: as above.
unsafe impl Sync for Scratch<'_> {}

impl<'a> Scratch<'a> {
    pub(super) fn new(workspace: &'a mut Workspace) -> Scratch<'a> {
        Scratch {
            bytes: workspace.bytes(),
            ptr: workspace.as_mut_ptr(),
            lifetime: PhantomData,
        }
    }

    /// Numbers `start..start + len` of a region of numbers of type `A` (`f32` or `f64`).
    ///
    /// # Safety
    /// Nobody else holds a borrow of these numbers.
    pub(super) unsafe fn slice<A: Real>(&self, region: Region, start: usize, len: usize) -> &'a mut [A] {
        let first = self.first(region, start, len);
        // SAFETY: in bounds, aligned and numbers (see `first`); exclusive by this function's contract.
        unsafe { std::slice::from_raw_parts_mut(first, len) }
    }

    /// The same numbers, for any number of tasks to read.
    ///
    /// # Safety
    /// Nobody writes these numbers, or holds a borrow that could, while this one lives.
    pub(super) unsafe fn shared<A: Real>(&self, region: Region, start: usize, len: usize) -> &'a [A] {
        let first = self.first(region, start, len);
        // SAFETY: in bounds, aligned and numbers (see `first`); unwritten by this function's contract.
        unsafe { std::slice::from_raw_parts(first, len) }
    }

    /// The first of `len` numbers: all in bounds; aligned, for regions start on cache lines; and every bit pattern is a number.
    fn first<A: Real>(&self, region: Region, start: usize, len: usize) -> *mut A {
        assert!(region.offset + region.bytes <= self.bytes && (start + len) * size_of::<A>() <= region.bytes);
        // SAFETY: in bounds of the workspace (just checked).
        unsafe { self.ptr.add(region.offset).cast::<A>().add(start) }
    }
}
