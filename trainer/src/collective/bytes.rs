//! Messages of any length between ranks.

use tch::{Kind, TchError, Tensor};

use super::error::{CollectiveError, Operation};
use super::{Collective, Patience};

/// Gives each rank the bytes of all ranks, in their order.
///
/// # Errors
/// [`CollectiveError`].
pub fn gather_bytes(group: &dyn Collective, mine: Vec<u8>) -> Result<Vec<Vec<u8>>, CollectiveError> {
    let ranks = group.world_size();
    if ranks == 1 {
        return Ok(vec![mine]);
    }
    let torch = |error: TchError| CollectiveError::of_call(group, Operation::AllGather, &error);
    let mut lengths = Tensor::f_zeros([ranks as i64], (Kind::Int64, tch::Device::Cpu)).map_err(torch)?;
    group.all_gather(&mut lengths, &length_of(&mine).map_err(torch)?)?;
    let lengths: Vec<i64> = Vec::try_from(&lengths).map_err(torch)?;
    // All parts are as long as the longest, and no tensor is empty.
    let room = lengths.iter().copied().max().unwrap_or(0).max(1) as usize;
    let mut padded = mine;
    padded.resize(room, 0);
    let mut all = Tensor::f_zeros([(ranks * room) as i64], (Kind::Uint8, tch::Device::Cpu)).map_err(torch)?;
    group.all_gather(&mut all, &Tensor::f_from_slice(&padded).map_err(torch)?)?;
    let all: Vec<u8> = Vec::try_from(&all).map_err(torch)?;
    let parts = all.chunks(room).zip(&lengths);
    Ok(parts.map(|(part, length)| part[..*length as usize].to_vec()).collect())
}

/// Gives the root's bytes to all ranks; the others' are ignored. `patience` is for the time until
/// the root calls.
///
/// # Errors
/// [`CollectiveError`].
pub fn broadcast_bytes(
    group: &dyn Collective,
    bytes: Vec<u8>,
    root: usize,
    patience: Patience,
) -> Result<Vec<u8>, CollectiveError> {
    if group.world_size() == 1 {
        return Ok(bytes);
    }
    let torch = |error: TchError| CollectiveError::of_call(group, Operation::Broadcast, &error);
    let mut length = length_of(&bytes).map_err(torch)?;
    group.broadcast(&mut length, root, patience)?;
    let length = length.f_int64_value(&[0]).map_err(torch)? as usize;
    let mut padded = if group.rank() == root { bytes } else { Vec::new() };
    padded.resize(length.max(1), 0);
    let mut value = Tensor::f_from_slice(&padded).map_err(torch)?;
    group.broadcast(&mut value, root, Patience::Step)?;
    let mut bytes: Vec<u8> = Vec::try_from(&value).map_err(torch)?;
    bytes.truncate(length);
    Ok(bytes)
}

fn length_of(bytes: &[u8]) -> Result<Tensor, TchError> {
    Tensor::f_from_slice(&[bytes.len() as i64])
}
