// The only code that needs the headers of CUDA and NCCL: it makes c10d's NCCL group. `setup.py
// --gpu` compiles it to `libdyad_nccl.so`, which `device::cuda` opens after libtorch_cuda. The
// calls of a group go through `c10d::Backend` (`group.cpp`), for NCCL as for Gloo.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace {

// Copies a message with its final zero; a long one is cut.
void say(const char* message, char* error, size_t room) {
  if (room == 0) {
    return;
  }
  const size_t length = std::min(std::strlen(message), room - 1);
  std::memcpy(error, message, length);
  error[length] = 0;
}

} // namespace

extern "C" {

// Makes this rank's member of a group that meets in `store`, for tensors on GPU `device`. On
// success returns 0, and the caller owns `*backend`. No exception leaves this function.
__attribute__((visibility("default"))) int dyad_nccl_new(
    c10d::Store* store,
    int rank,
    int world_size,
    int64_t timeout_ms,
    int device,
    c10d::Backend** backend,
    char* error,
    size_t room) noexcept {
  try {
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = std::chrono::milliseconds(timeout_ms);
    auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(
        c10::intrusive_ptr<c10d::Store>::reclaim_copy(store), rank, world_size, options);
    group->setBoundDeviceId(at::Device(at::kCUDA, static_cast<at::DeviceIndex>(device)));
    *backend = group.release();
    return 0;
  } catch (const c10::Error& failure) {
    say(failure.what_without_backtrace(), error, room);
  } catch (const std::exception& failure) {
    say(failure.what(), error, room);
  } catch (...) {
    say("an exception without a message", error, room);
  }
  return 1;
}

} // extern "C"
