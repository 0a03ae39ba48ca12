#include <gradus/shape.h>

#include <ostream>

#include "check.h"

namespace gradus {

Shape::Shape(const std::int64_t* first, const std::int64_t* last) {
  check(last - first <= max_rank, "Shape", "rank ", last - first, " is above the limit of ", max_rank);
  for (; first != last; ++first) sizes_[static_cast<std::size_t>(size_++)] = *first;
}

void Shape::insert(int at, std::int64_t size) {
  check(at >= 0 && at <= size_, "Shape", "cannot insert at ", at, " into ", *this);
  check(size_ < max_rank, "Shape", "rank ", size_ + 1, " is above the limit of ", max_rank);
  for (int i = size_; i > at; --i) (*this)[i] = (*this)[i - 1];
  (*this)[at] = size;
  ++size_;
}

void Shape::erase(int at) {
  check(at >= 0 && at < size_, "Shape", "cannot erase ", at, " of ", *this);
  for (int i = at; i + 1 < size_; ++i) (*this)[i] = (*this)[i + 1];
  --size_;
}

std::int64_t Shape::numel() const {
  std::int64_t product = 1;
  bool overflow = false;
  for (const std::int64_t size : *this) {
    if (size == 0) return 0;
    overflow |= __builtin_mul_overflow(product, size, &product);
  }
  check(!overflow, "Shape", "the number of elements of ", *this, " does not fit 63 bits");
  return product;
}

std::string Shape::str() const {
  std::string text = "[";
  for (int i = 0; i < size_; ++i) {
    if (i) text += ", ";
    text += std::to_string((*this)[i]);
  }
  return text + "]";
}

std::ostream& operator<<(std::ostream& os, const Shape& shape) { return os << shape.str(); }

}  // namespace gradus
