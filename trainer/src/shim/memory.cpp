// The memory of libtorch's allocator on a GPU.

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include "guarded.hpp"

// Writes four numbers of bytes: in tensors, the most so far, taken from the GPU by this process's
// allocator, and all that the GPU has.
DYAD_EXPORT int dyad_cuda_memory(int device, uint64_t* bytes, char* error, size_t room) noexcept {
  return dyad::guarded(error, room, [&] {
    const auto index = static_cast<c10::DeviceIndex>(device);
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(index);
    const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    bytes[0] = static_cast<uint64_t>(stats.allocated_bytes[all].current);
    bytes[1] = static_cast<uint64_t>(stats.allocated_bytes[all].peak);
    bytes[2] = static_cast<uint64_t>(stats.reserved_bytes[all].current);
    bytes[3] = at::cuda::getDeviceProperties(index)->totalGlobalMem;
  });
}
