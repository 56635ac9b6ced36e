// The product of rows and a packed weight, shared by the linear and the vocabulary projection: one `Product` for each kind
// of arithmetic, which computes an output by the same operations for any number of rows.
#pragma once
#if defined(__AMX_BF16__)
#include "product_amx.h"
#else
#include "product_vector.h"
#endif
