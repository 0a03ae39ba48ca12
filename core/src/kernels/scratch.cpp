#include "scratch.h"

#include <new>

namespace gradus::kernels {
namespace {

struct Buffer {
  void* data = nullptr;
  std::size_t bytes = 0;
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { ::operator delete (data, std::align_val_t{64}); }
};

}  // namespace

void* scratch(int slot, std::size_t bytes) {
  thread_local Buffer buffers[5];
  Buffer& buffer = buffers[slot];
  if (buffer.bytes < bytes) {
    ::operator delete (buffer.data, std::align_val_t{64});
    buffer.data = nullptr;
    buffer.bytes = 0;
    buffer.data = ::operator new (bytes, std::align_val_t{64});
    buffer.bytes = bytes;
  }
  return buffer.data;
}

}  // namespace gradus::kernels
