"""Trains a convolutional network with SGD; its images are made on the CPU, as a simple loader does."""

from training import FakeSize, parser, train


def main() -> None:
    asked = parser("a convolutional network").parse_args()

    def make_step(torch):  # type: ignore[no-untyped-def]
        nn, width = torch.nn, 64
        layers = [nn.Conv2d(3, width, 3, padding=1)]
        for _ in range(8):
            layers += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 100)]
        model = nn.Sequential(*layers).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

        def step() -> None:
            images = torch.randn(asked.batch, 3, 64, 64).cuda()
            labels = torch.randint(100, (asked.batch,)).cuda()
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()

        return step

    train(make_step, FakeSize(0.6, 0.024), asked.batch)


if __name__ == "__main__":
    main()
