# reason: bad-arguments
import yaml

CONFIG = """
model:
  width: 128
   depth: 4
"""


def read_config():
    return yaml.safe_load(CONFIG)


read_config()
