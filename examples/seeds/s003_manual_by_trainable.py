import random

import tuner as tune


# to be implemented by user.
def detect_instance_preemption():
    choice = random.randint(1, 100)
    # simulating a 1% chance of preemption.
    return choice <= 1


class MyTrainableClass(tune.Trainable):
    def step(self):
        # training code
        result = {"mean_accuracy": "my_accuracy"}
        if detect_instance_preemption():
            result.update(should_checkpoint=True)
        return result

    def save_checkpoint(self, checkpoint_dir):
        return {"iteration": self.iteration}

    def load_checkpoint(self, checkpoint):
        pass


tuner = tune.Tuner(
    MyTrainableClass,
    run_config=tune.RunConfig(stop={"training_iteration": 200}),
)
tuner.fit()
