#pragma once
// GRADUS_API marks what a shared build of the library exports; everything else stays hidden.
#if defined(_WIN32)
#define GRADUS_API
#else
#define GRADUS_API __attribute__((visibility("default")))
#endif
