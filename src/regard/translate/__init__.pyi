from regard.translate.config import (
    DataConfig as DataConfig,
)
from regard.translate.config import (
    RunConfig as RunConfig,
)
from regard.translate.config import (
    TrainingConfig as TrainingConfig,
)
from regard.translate.config import (
    ValidationConfig as ValidationConfig,
)
from regard.translate.strategies import Beam as Beam
from regard.translate.strategies import Greedy as Greedy
from regard.translate.strategies import Sampling as Sampling
from regard.translate.training import train as train
from regard.translate.translation import Translation as Translation
from regard.translate.translator import Translator as Translator
