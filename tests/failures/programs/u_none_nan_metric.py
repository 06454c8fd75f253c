# reason: unknown
import sys

for epoch in range(3):
    print(f"epoch {epoch} train_loss 0.41 val_auc nan (one class only) errors 0 oom 0")
print("evaluation finished")
sys.exit(1)
