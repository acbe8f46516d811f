"""The campaign against regard: random calls, damaged files, random command lines, a fuzzed API.

python -m fuzz --seconds 600            all of it
python -m fuzz calls --count 100000     so many cases of one kind
python -m fuzz calls --seed 1234        one case again
"""
