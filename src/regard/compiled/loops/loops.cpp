/* The loops of which no fast form can be put together from PyTorch's operations.
 *
 * Compiled for the machine they run on (building.py), and called from Python (calling.py). Where
 * several threads are meant to help, OpenMP shares the work among those that PyTorch uses too.
 */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

#include "vectors.h"
#include "rows.h"
#include "products.h"
#include "few_queries.h"
#include "short_texts.h"
#include "decoding.h"
#include "best_words.h"
#include "dropout.h"
