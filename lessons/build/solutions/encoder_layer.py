def encoder_layer(x, attend, feed_forward, norm_1, norm_2):
    x = norm_1(x + attend(x, x))
    return norm_2(x + feed_forward(x))
