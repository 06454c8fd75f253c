# reason: semantic-error
import yaml

cfg = yaml.safe_load("optimizer: {name: adam}")
lr = cfg["optimizer"]["lr"]
