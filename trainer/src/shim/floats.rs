//! Reads the numbers of a tensor as a slice; tch would copy them into a vector.

use half::bf16;
use tch::{Device, Kind, TchError, Tensor};

/// A number type that is read in place.
///
/// # Safety
/// `KIND` is libtorch's name of numbers that equal this type bit for bit, and every bit pattern is
/// a valid value.
pub(crate) unsafe trait Number: Copy {
    const KIND: Kind;
}

// SAFETY: libtorch's float.
unsafe impl Number for f32 {
    const KIND: Kind = Kind::Float;
}

// SAFETY: both types are the same 16 bits.
unsafe impl Number for bf16 {
    const KIND: Kind = Kind::BFloat16;
}

/// The elements of a dense tensor of this kind on the CPU, in order; `None` for other tensors. No
/// code may write to the storage during the borrow, through this tensor or another with the same
/// storage. One thread owns each weight, cache or activation, and that thread makes this call.
pub(crate) fn read<T: Number>(tensor: &Tensor) -> Option<&[T]> {
    if tensor.kind() != T::KIND || tensor.device() != Device::Cpu || !tensor.is_contiguous() {
        return None;
    }
    if tensor.numel() == 0 {
        return Some(&[]);
    }
    // SAFETY: a dense CPU tensor has `numel` aligned numbers of its kind from its data pointer on,
    // for its whole life. Published weights are never written to. A cache or an activation is
    // written only by its owner thread, which is here.
    Some(unsafe { std::slice::from_raw_parts(tensor.data_ptr().cast::<T>(), tensor.numel()) })
}

/// Creates a dense f32 tensor on the CPU. `fill` must write all of its elements.
///
/// # Errors
/// libtorch's, when memory is short.
pub(crate) fn made(size: &[i64], fill: impl FnOnce(&mut [f32])) -> Result<Tensor, TchError> {
    let mut tensor = Tensor::f_empty(size, (Kind::Float, Device::Cpu))?;
    fill(write(&mut tensor));
    Ok(tensor)
}

/// Creates three tensors, which `fill` writes together.
///
/// # Errors
/// The same as for [`made`].
pub(crate) fn made_three(sizes: [[i64; 3]; 3], fill: impl FnOnce([&mut [f32]; 3])) -> Result<[Tensor; 3], TchError> {
    let empty = |size: [i64; 3]| Tensor::f_empty(size, (Kind::Float, Device::Cpu));
    let [first, second, third] = sizes;
    let mut tensors = [empty(first)?, empty(second)?, empty(third)?];
    fill(tensors.each_mut().map(write));
    Ok(tensors)
}

/// The elements of a tensor created here, with storage that no other tensor shares.
fn write(tensor: &mut Tensor) -> &mut [f32] {
    if tensor.numel() == 0 {
        return &mut [];
    }
    // SAFETY: as in `read`. The memory comes from libtorch's allocator and may hold old numbers;
    // every bit pattern is an f32.
    unsafe { std::slice::from_raw_parts_mut(tensor.data_ptr().cast::<f32>(), tensor.numel()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_dense_on_the_cpu_is_read_in_place() {
        let all = Tensor::arange(12, (Kind::Float, Device::Cpu)).view([3, 4]);
        assert_eq!(read::<f32>(&all.get(1)), Some([4.0, 5.0, 6.0, 7.0].as_slice()));
        assert_eq!(read::<f32>(&all.tr()), None);
        assert_eq!(read::<f32>(&all.to_kind(Kind::Double)), None);
        assert_eq!(read::<f32>(&all.narrow(0, 0, 0)), Some([].as_slice()));
        let halves = (all + 0.0625).to_kind(Kind::BFloat16);
        let wanted = [4.0625, 5.0625, 6.0625, 7.0625].map(bf16::from_f32);
        assert_eq!(read::<bf16>(&halves.get(1)), Some(wanted.as_slice()));
        assert!(read::<f32>(&halves).is_none() && read::<bf16>(&halves.tr()).is_none());
    }

    #[test]
    fn what_was_written_is_the_tensor() {
        let made = made(&[2, 2], |all| all.copy_from_slice(&[1.0, 2.0, 3.0, 4.0])).unwrap();
        assert_eq!(
            Vec::<f32>::try_from(made.tr().contiguous().view(-1)).unwrap(),
            [1.0, 3.0, 2.0, 4.0]
        );
    }
}
