#pragma once
#include <gradus/export.h>

#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <string>
#include <type_traits>
#include <vector>

namespace gradus {

/// A short list of 64-bit sizes (or strides, or dims), held inline: making and copying one never allocates.
/// At most `max_rank` entries; a longer one throws Error. As with std::vector, [], front and back take what exists
/// only.
class GRADUS_API Shape {
 public:
  static constexpr int max_rank = 8;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes) : Shape(sizes.begin(), sizes.end()) {}
  /// One size: `zeros(3)` is `zeros({3})`, `x.sum(0)` is `x.sum({0})`.
  template <std::integral T>
  requires(!std::is_same_v<T, bool>) Shape(T size) : Shape({static_cast<std::int64_t>(size)}) {}
  Shape(const std::vector<std::int64_t>& sizes) : Shape(sizes.data(), sizes.data() + sizes.size()) {}
  Shape(const std::int64_t* first, const std::int64_t* last);

  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::int64_t operator[](std::int64_t i) const { return sizes_[static_cast<std::size_t>(i)]; }
  std::int64_t& operator[](std::int64_t i) { return sizes_[static_cast<std::size_t>(i)]; }
  const std::int64_t* begin() const { return sizes_.data(); }
  const std::int64_t* end() const { return sizes_.data() + size_; }
  std::int64_t* begin() { return sizes_.data(); }
  std::int64_t* end() { return sizes_.data() + size_; }
  std::int64_t front() const { return sizes_[0]; }
  std::int64_t back() const { return (*this)[size_ - 1]; }

  void push_back(std::int64_t size) { insert(size_, size); }
  void insert(int at, std::int64_t size);
  void erase(int at);

  /// The product of the sizes (1 for rank 0); Error where it does not fit 63 bits.
  std::int64_t numel() const;
  std::vector<std::int64_t> to_vector() const { return {begin(), end()}; }
  /// "[2, 3]"
  std::string str() const;

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.size_ != b.size_) return false;
    for (int i = 0; i < a.size_; ++i)
      if (a[i] != b[i]) return false;
    return true;
  }

 private:
  std::array<std::int64_t, max_rank> sizes_{};
  int size_ = 0;
};

GRADUS_API std::ostream& operator<<(std::ostream& os, const Shape& shape);

}  // namespace gradus
