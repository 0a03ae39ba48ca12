#pragma once
// Tensors in files that Python reads and writes too. Every write is atomic: the values go to a temporary file beside
// the target, which is flushed to the disk and then takes the target's name. Where anything fails (a full disk, too),
// an Error says so, the temporary file is removed, and what stood under the name still does. (A process that is killed
// in the middle leaves its temporary file, NAME.tmp-…, behind.)
#include <gradus/tensor.h>

#include <map>
#include <string>

namespace gradus {

/// Tensors by name, in the order of the names: the type of nn::StateDict and optim::StateDict.
using TensorMap = std::map<std::string, Tensor, std::less<>>;
/// What a safetensors file says about itself: texts by name.
using FileMetadata = std::map<std::string, std::string, std::less<>>;

struct Safetensors {
  TensorMap tensors;
  FileMetadata metadata;
};

/// Writes the tensors under their names, each row-major whatever its strides; two names for one tensor are written
/// twice. Equal tensors and metadata give equal bytes: those of Python's safetensors (where metadata has one entry at
/// most). Some Python programs want the metadata {{"format", "pt"}}. A path may be a std::filesystem::path.
/// Error for an undefined tensor, for a name "__metadata__", and for texts that are not UTF-8.
///
///     save_safetensors("net.safetensors", net.state_dict());
///     net.load_state_dict(load_safetensors("net.safetensors").tensors);
GRADUS_API void save_safetensors(const std::string& path, const TensorMap& tensors, const FileMetadata& metadata = {});

/// Reads a safetensors file: F32, F64, I64 and BOOL as they are, F16 and BF16 as Float32, I8 to I32 and U8 to U32 as
/// Int64, none of which loses anything. Error for other types, for a rank above Shape::max_rank, and for every file
/// that breaks the format: a header that is no JSON object, a name twice, byte ranges that overlap or leave a hole, a
/// size that does not fit. Nothing larger than the file asks for is allocated before it has been checked.
GRADUS_API Safetensors load_safetensors(const std::string& path);

/// Writes one tensor as NumPy's .npy (version 1.0, C order): f4, f8, i8 or b1. Row-major whatever its strides.
GRADUS_API void save_npy(const std::string& path, const Tensor& tensor);

/// Reads NumPy's .npy, versions 1 to 3, C and Fortran order, either byte order: f4, f8, i8 and b1 as they are, f2 as
/// Float32, i1 to i4 and u1 to u4 as Int64. Error for other types (objects, structures, texts, u8, complex numbers),
/// a rank above Shape::max_rank, and for files that break the format or hold more than the array.
GRADUS_API Tensor load_npy(const std::string& path);

}  // namespace gradus
