import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import estimator_checks_generator

from unrelu.errors import InvalidInput
from unrelu.gaussian.estimator import HermiteNetRegressor

CHECKS = list(
    estimator_checks_generator(HermiteNetRegressor(check_gaussian=False, random_state=0))
)


@pytest.mark.filterwarnings("ignore")  # the checks provoke warnings of numpy's own
@pytest.mark.parametrize(
    "index", range(len(CHECKS)), ids=[getattr(c, "func", c).__name__ for _, c in CHECKS]
)
def test_scikit_learn_estimator_check(index):
    estimator, check = CHECKS[index]
    if getattr(check, "func", check).__name__ == "check_array_api_input":
        pytest.skip("array API input is off unless scipy is built for it")
    check(estimator)


def test_fit_predict_and_parameters():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((20_000, 3))
    y = np.maximum(x[:, 0] + 0.3, 0) - np.maximum(x[:, 1] - 0.2, 0)
    model = clone(HermiteNetRegressor(random_state=0)).fit(x, y)
    np.testing.assert_allclose(model.predict(x[:100]), y[:100], atol=1e-9)
    assert model.score(x, y) > 1 - 1e-12
    assert model.get_params()["width"] is None
    assert model.result_.width == 2


def test_inputs_that_are_not_gaussian_raise():
    x = np.random.default_rng(0).uniform(size=(5000, 2))
    with pytest.raises(InvalidInput, match="not Gaussian"):
        HermiteNetRegressor().fit(x, x[:, 0])
