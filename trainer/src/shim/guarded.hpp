// Shared by the C++ sources: no exception leaves their functions.
//
// `group.cpp` is part of every build. The others make dyad's CUDA library: only they need CUDA's
// headers. `setup.py --gpu` compiles them to `libdyad_cuda.so`, which `device::cuda` opens after
// libtorch_cuda. A change of any of its functions changes the number that `dyad_cuda_interface`
// returns, here and in `device/cuda.rs`.

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>

#include <c10/util/Exception.h>

#define DYAD_EXPORT extern "C" __attribute__((visibility("default")))

namespace dyad {

// Copies a message with its final zero; a long one is cut.
inline void say(const char* message, char* error, size_t room) {
  if (room == 0) {
    return;
  }
  const size_t length = std::min(std::strlen(message), room - 1);
  std::memcpy(error, message, length);
  error[length] = 0;
}

// Runs `work`; returns 0, or 1 and the exception's message.
template <typename Work>
int guarded(char* error, size_t room, Work work) noexcept {
  try {
    work();
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

} // namespace dyad
