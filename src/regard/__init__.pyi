from regard import (
    attention as attention,
)
from regard import (
    challenge as challenge,
)
from regard import (
    course as course,
)
from regard import (
    errors as errors,
)
from regard import (
    lens as lens,
)
from regard import (
    nn as nn,
)
from regard import (
    text as text,
)
from regard import (
    translate as translate,
)
from regard import (
    vectors as vectors,
)
from regard import (
    view as view,
)
from regard import (
    walkthrough as walkthrough,
)
from regard.attention import (
    Additive as Additive,
)
from regard.attention import (
    ALiBi as ALiBi,
)
from regard.attention import (
    Bilinear as Bilinear,
)
from regard.attention import (
    Learned as Learned,
)
from regard.attention import (
    Look as Look,
)
from regard.attention import (
    RelativeBias as RelativeBias,
)
from regard.attention import (
    Rotary as Rotary,
)
from regard.attention import (
    Scaled as Scaled,
)
from regard.attention import (
    Sinusoidal as Sinusoidal,
)
from regard.attention import (
    Softcap as Softcap,
)
from regard.attention import (
    attend as attend,
)
from regard.attention import (
    causal as causal,
)
from regard.attention import (
    dense as dense,
)
from regard.attention import (
    keys as keys,
)
from regard.attention import (
    look as look,
)
from regard.attention import (
    padding as padding,
)
from regard.attention import (
    prefix as prefix,
)
from regard.attention import (
    scaled_dot_product_attention as scaled_dot_product_attention,
)
from regard.attention import (
    segments as segments,
)
from regard.attention import (
    which as which,
)
from regard.attention import (
    window as window,
)
from regard.lens import Lens as Lens
from regard.lens import cut as cut
from regard.lens import judge as judge
from regard.lens import see as see
from regard.lens import watch as watch
from regard.translate import Translator as Translator
from regard.vectors import Vectors as Vectors
from regard.vectors import contextualise as contextualise
from regard.vectors import similar as similar
from regard.walkthrough import steps as steps

__version__: str
