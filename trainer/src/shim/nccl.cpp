// c10d's group over NCCL. The calls of a group go through `c10d::Backend` (`group.cpp`), for NCCL
// as for Gloo.

#include <chrono>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "guarded.hpp"

// Makes this rank's member of a group that meets in `store`, for tensors on GPU `device`. On
// success returns 0, and the caller owns `*backend`.
DYAD_EXPORT int dyad_nccl_new(
    c10d::Store* store,
    int rank,
    int world_size,
    int64_t timeout_ms,
    int device,
    c10d::Backend** backend,
    char* error,
    size_t room) noexcept {
  return dyad::guarded(error, room, [&] {
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = std::chrono::milliseconds(timeout_ms);
    auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(
        c10::intrusive_ptr<c10d::Store>::reclaim_copy(store), rank, world_size, options);
    group->setBoundDeviceId(at::Device(at::kCUDA, static_cast<at::DeviceIndex>(device)));
    *backend = group.release();
  });
}
