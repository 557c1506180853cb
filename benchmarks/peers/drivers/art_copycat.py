"""adversarial-robustness-toolbox: CopycatCNN."""

from art_thief import main

main("CopycatCNN")
