
import io
def save(figure, file):
    figure.savefig(file, dpi=150)
