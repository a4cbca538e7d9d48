"""The built-in questions and replies of the responder, by language (ISO 639-1)."""

from typing import NamedTuple


class Phrases(NamedTuple):
    """The phrases of one language: questions about the bot, separated by `|`, and the replies to them."""

    identity: str  # questions
    contact: str
    location: str
    person: str  # requests for a person
    identity_reply: str  # with {name}
    contact_reply: str  # with {contact}
    location_reply: str  # with {location}
    no_answer: str  # the reply to all other messages
    handed_over: str  # the reply to a request for a person


PHRASES = {
    "en": Phrases(
        "hello|hi|good morning|who are you|what is your name|what are you|what can you do|are you a bot"
        "|are you a robot|are you human|are you a real person|am I talking to a human|am I talking to a person"
        "|is this a bot|is this a human|is this a person",
        "contact|how can I contact you|how can I reach you|phone|phone number|what is your phone number|email"
        "|email address|what is your email address|what is your e-mail address|website|do you have a website"
        "|opening hours|what are your opening hours|when are you open",
        "address|what is your address|where are you|where are you located|where can I find you|where is your shop",
        "can I talk to a person|can I talk to a human|I want to talk to a human|I want to talk to a real person"
        "|I want to speak to someone|can I speak to an agent|talk to an agent|speak to a human|connect me to an agent"
        "|human please|live agent|human agent|call a person|how do I reach a person",
        "I am {name}, and I reply automatically.",
        "You can reach us here: {contact}",
        "You can find us here: {location}",
        "I reply automatically and do not have an answer to this. A person will read your message.",
        "I have called a person, who will reply here.",
    ),
    "de": Phrases(
        "hallo|guten Tag|guten Morgen|wer bist du|wie heißt du|wie heißen Sie|wer sind Sie|was bist du|was kannst du"
        "|bist du ein Bot|bist du ein Roboter|bist du ein Mensch|sind Sie ein Mensch|rede ich mit einem Menschen",
        "Kontakt|wie kann ich euch erreichen|wie kann ich Sie erreichen|Telefon|Telefonnummer"
        "|wie ist Ihre Telefonnummer|E-Mail-Adresse|wie ist Ihre E-Mail-Adresse|Webseite|Öffnungszeiten"
        "|wie sind die Öffnungszeiten|was sind Ihre Öffnungszeiten|wann haben Sie geöffnet|wann habt ihr offen",
        "Adresse|Anschrift|wie ist Ihre Adresse|wo seid ihr|wo sind Sie|wo finde ich euch|wo finde ich Sie",
        "kann ich mit einem Menschen sprechen|ich möchte mit einem Menschen sprechen"
        "|ich will mit einem Menschen reden|kann ich mit einem Mitarbeiter sprechen|mit einem Mitarbeiter sprechen"
        "|ich möchte mit jemandem sprechen|Mitarbeiter bitte|wie erreiche ich einen Menschen",
        "Ich bin {name} und antworte automatisch.",
        "Sie erreichen uns hier: {contact}",
        "Sie finden uns hier: {location}",
        "Ich antworte automatisch und habe darauf keine Antwort. Ein Mensch wird Ihre Nachricht lesen.",
        "Ich habe einen Menschen gerufen, der Ihnen hier antwortet.",
    ),
    "fr": Phrases(
        "bonjour|salut|qui êtes-vous|comment vous appelez-vous|qui es-tu|que pouvez-vous faire|êtes-vous un robot"
        "|es-tu un robot|êtes-vous humain|est-ce que je parle à une personne",
        "contact|comment vous contacter|comment puis-je vous contacter|comment vous joindre|téléphone"
        "|numéro de téléphone|quel est votre numéro de téléphone|adresse e-mail|quelle est votre adresse e-mail"
        "|site web|horaires|horaires d'ouverture|quels sont vos horaires|quand êtes-vous ouverts",
        "adresse|quelle est votre adresse|où êtes-vous|où vous trouver|où puis-je vous trouver",
        "puis-je parler à une personne|je veux parler à une personne|je veux parler à un humain"
        "|je voudrais parler à quelqu'un|parler à un conseiller|puis-je parler à un conseiller|parler à un agent"
        "|un conseiller s'il vous plaît|comment joindre une personne",
        "Je suis {name} et je réponds automatiquement.",
        "Vous pouvez nous joindre ici : {contact}",
        "Vous nous trouvez ici : {location}",
        "Je réponds automatiquement et n'ai pas de réponse à ceci. Une personne lira votre message.",
        "J'ai appelé une personne, qui vous répondra ici.",
    ),
    "es": Phrases(
        "hola|buenos días|quién eres|cómo te llamas|quién es usted|qué eres|qué puedes hacer|eres un bot|eres un robot"
        "|eres humano|estoy hablando con una persona",
        "contacto|cómo puedo contactarlos|cómo puedo contactar con ustedes|teléfono|número de teléfono"
        "|cuál es su número de teléfono|correo electrónico|cuál es su correo electrónico|página web|horario"
        "|horario de apertura|cuál es su horario|a qué hora abren|cuándo abren",
        "dirección|cuál es su dirección|dónde están|dónde estáis|dónde puedo encontrarlos",
        "quiero hablar con una persona|puedo hablar con una persona|quiero hablar con un humano"
        "|quiero hablar con alguien|hablar con un agente|puedo hablar con un agente|un agente por favor"
        "|cómo contacto con una persona",
        "Soy {name} y respondo automáticamente.",
        "Puede contactarnos aquí: {contact}",
        "Nos encuentra aquí: {location}",
        "Respondo automáticamente y no tengo una respuesta para esto. Una persona leerá su mensaje.",
        "He llamado a una persona, que le responderá aquí.",
    ),
    "it": Phrases(
        "ciao|buongiorno|chi sei|come ti chiami|chi è lei|che cosa sei|cosa puoi fare|sei un bot|sei un robot|sei umano"
        "|sto parlando con una persona",
        "contatto|contatti|come posso contattarvi|telefono|numero di telefono|qual è il vostro numero di telefono"
        "|indirizzo e-mail|qual è il vostro indirizzo e-mail|sito web|orari|orari di apertura"
        "|quali sono i vostri orari|quando siete aperti",
        "indirizzo|qual è il vostro indirizzo|dove siete|dove vi trovo|dove vi trovate",
        "posso parlare con una persona|voglio parlare con una persona|vorrei parlare con qualcuno"
        "|parlare con un operatore|voglio parlare con un operatore|posso parlare con un operatore"
        "|un operatore per favore",
        "Sono {name} e rispondo automaticamente.",
        "Può contattarci qui: {contact}",
        "Ci trova qui: {location}",
        "Rispondo automaticamente e non ho una risposta per questo. Una persona leggerà il suo messaggio.",
        "Ho chiamato una persona, che le risponderà qui.",
    ),
    "pt": Phrases(
        "olá|oi|bom dia|quem é você|qual é o seu nome|quem és tu|o que é você|o que você pode fazer|você é um bot"
        "|você é um robô|és um robô|você é humano|estou falando com uma pessoa",
        "contato|contacto|como posso contatar vocês|como posso contactar-vos|telefone|número de telefone"
        "|qual é o número de telefone|e-mail|qual é o e-mail|site|horário|horário de funcionamento"
        "|qual é o horário de funcionamento|quando estão abertos|quando abrem",
        "endereço|morada|qual é o endereço|onde vocês ficam|onde estão|onde fica a loja",
        "quero falar com uma pessoa|posso falar com uma pessoa|quero falar com um humano|quero falar com alguém"
        "|falar com um atendente|quero falar com um atendente|um atendente por favor",
        "Sou {name} e respondo automaticamente.",
        "Pode falar com a equipa aqui: {contact}",
        "Estamos aqui: {location}",
        "Respondo automaticamente e não tenho uma resposta para isto. Uma pessoa lerá a sua mensagem.",
        "Chamei uma pessoa, que lhe responderá aqui.",
    ),
    "nl": Phrases(
        "hallo|hoi|goedemorgen|wie ben je|hoe heet je|wie bent u|wat ben je|wat kun je|ben je een bot|ben je een robot"
        "|ben je een mens|spreek ik met een mens",
        "contact|hoe kan ik jullie bereiken|hoe kan ik u bereiken|telefoon|telefoonnummer"
        "|wat is uw telefoonnummer|e-mailadres|wat is uw e-mailadres|website|openingstijden"
        "|wat zijn uw openingstijden|wanneer zijn jullie open|wanneer bent u open",
        "adres|wat is uw adres|waar zijn jullie|waar bent u|waar kan ik jullie vinden",
        "kan ik met een mens praten|ik wil met een mens praten|ik wil met iemand praten"
        "|kan ik een medewerker spreken|ik wil een medewerker spreken|met een medewerker praten"
        "|een medewerker graag",
        "Ik ben {name} en antwoord automatisch.",
        "U kunt ons hier bereiken: {contact}",
        "U vindt ons hier: {location}",
        "Ik antwoord automatisch en heb hierop geen antwoord. Een mens zal uw bericht lezen.",
        "Ik heb een medewerker geroepen, die u hier antwoordt.",
    ),
    "pl": Phrases(
        "cześć|dzień dobry|kim jesteś|jak się nazywasz|kim pan jest|czym jesteś|co potrafisz|jesteś botem"
        "|czy jesteś botem|czy jesteś robotem|czy jesteś człowiekiem|czy rozmawiam z człowiekiem",
        "kontakt|jak mogę się z wami skontaktować|telefon|numer telefonu|jaki jest wasz numer telefonu"
        "|adres e-mail|jaki jest wasz adres e-mail|strona internetowa|godziny otwarcia"
        "|jakie są godziny otwarcia|kiedy jesteście otwarci",
        "adres|jaki jest wasz adres|gdzie jesteście|gdzie was znajdę|gdzie się znajdujecie",
        "chcę rozmawiać z człowiekiem|chcę porozmawiać z człowiekiem|czy mogę porozmawiać z człowiekiem"
        "|chcę rozmawiać z konsultantem|połącz mnie z konsultantem|chcę z kimś porozmawiać",
        "Jestem {name} i odpowiadam automatycznie.",
        "Można się z nami skontaktować tutaj: {contact}",
        "Jesteśmy tutaj: {location}",
        "Odpowiadam automatycznie i nie mam na to odpowiedzi. Tę wiadomość przeczyta człowiek.",
        "Wezwano pracownika, który odpowie tutaj.",
    ),
    "tr": Phrases(
        "merhaba|günaydın|iyi günler|sen kimsin|adın ne|adınız nedir|kimsiniz|sen nesin|ne yapabilirsin|bot musun"
        "|robot musun|sen bir bot musun|sen bir robot musun|insan mısın|bir insanla mı konuşuyorum",
        "iletişim|size nasıl ulaşabilirim|telefon|telefon numarası|telefon numaranız nedir|e-posta adresi"
        "|e-posta adresiniz nedir|web sitesi|çalışma saatleri|çalışma saatleriniz nedir|açılış saatleri"
        "|ne zaman açıksınız",
        "adres|adresiniz nedir|neredesiniz|sizi nerede bulabilirim|yeriniz nerede",
        "bir insanla konuşmak istiyorum|bir insanla konuşabilir miyim|birisiyle konuşmak istiyorum"
        "|bir temsilciyle görüşmek istiyorum|müşteri temsilcisi istiyorum|beni temsilciye bağla",
        "Ben {name}; otomatik olarak cevap veriyorum.",
        "Bize buradan ulaşabilirsiniz: {contact}",
        "Bizi burada bulabilirsiniz: {location}",
        "Otomatik olarak cevap veriyorum ve bunun için bir yanıtım yok. Mesajınızı bir insan okuyacak.",
        "Bir çalışanımızı çağırdım; size burada cevap verecek.",
    ),
    "ar": Phrases(
        "مرحبا|السلام عليكم|صباح الخير|من أنت|ما اسمك|ما أنت|من أنتم|ماذا يمكنك أن تفعل|هل أنت روبوت|هل أنت إنسان"
        "|هل أتحدث مع شخص",
        "اتصال|كيف يمكنني التواصل معكم|كيف أتواصل معكم|هاتف|رقم الهاتف|ما هو رقم هاتفكم|البريد الإلكتروني"
        "|ما هو بريدكم الإلكتروني|الموقع الإلكتروني|ساعات العمل|ما هي ساعات العمل|أوقات الدوام|متى تفتحون",
        "العنوان|ما هو عنوانكم|أين أنتم|أين تقعون|أين يمكنني أن أجدكم",
        "أريد التحدث مع شخص|أريد التحدث إلى شخص|هل يمكنني التحدث مع شخص|أريد التحدث مع موظف"
        "|هل يمكنني التحدث مع موظف|أريد التحدث مع إنسان|حولني إلى موظف",
        "أنا {name}، أرد آليًا.",
        "يمكنكم التواصل معنا هنا: {contact}",
        "تجدوننا هنا: {location}",
        "أنا أرد آليًا وليست لدي إجابة عن هذا. سيقرأ شخص رسالتكم.",
        "لقد استدعيت شخصًا، وسيرد عليكم هنا.",
    ),
    "hi": Phrases(
        "नमस्ते|नमस्कार|आप कौन हैं|आपका नाम क्या है|तुम कौन हो|आप क्या हैं|आप क्या कर सकते हैं|क्या आप बॉट हैं"
        "|क्या आप रोबोट हैं|क्या आप इंसान हैं|क्या मैं किसी इंसान से बात कर रहा हूँ",
        "संपर्क|मैं आपसे कैसे संपर्क करूँ|फ़ोन|फ़ोन नंबर|आपका फ़ोन नंबर क्या है|ईमेल|आपका ईमेल क्या है|वेबसाइट"
        "|खुलने का समय|आपके खुलने का समय क्या है|आप कब खुलते हैं",
        "पता|आपका पता क्या है|आप कहाँ हैं|आप कहाँ स्थित हैं|मैं आपको कहाँ ढूँढूँ",
        "मैं किसी इंसान से बात करना चाहता हूँ|मैं किसी व्यक्ति से बात करना चाहता हूँ"
        "|क्या मैं किसी इंसान से बात कर सकता हूँ|मुझे किसी इंसान से बात करनी है|मुझे किसी कर्मचारी से बात करनी है",
        "मैं {name} हूँ और स्वचालित रूप से जवाब देता हूँ।",
        "आप हमसे यहाँ संपर्क कर सकते हैं: {contact}",
        "आप हमें यहाँ पा सकते हैं: {location}",
        "मैं स्वचालित रूप से जवाब देता हूँ और इसका कोई उत्तर मेरे पास नहीं है। कोई व्यक्ति आपका संदेश पढ़ेगा।",
        "मैंने एक व्यक्ति को बुलाया है, जो आपको यहाँ जवाब देगा।",
    ),
    "zh": Phrases(
        "你好|您好|早上好|你是谁|你叫什么名字|您是谁|你是什么|你能做什么|你会做什么|你是机器人吗|您是机器人吗|你是真人吗|你是人吗",
        "联系方式|怎么联系你们|如何联系你们|电话|电话号码|你们的电话号码是多少|邮箱|电子邮箱|你们的邮箱是什么|网站"
        "|营业时间|你们的营业时间|营业时间是什么时候|你们几点开门|什么时候开门",
        "地址|你们的地址是什么|你们在哪里|你们在哪儿|在哪里可以找到你们",
        "转人工|我要转人工|人工客服|我要人工客服|我想和真人说话|我想跟真人聊天|可以和真人说话吗|请帮我转人工客服",
        "我是{name},自动回复消息。",
        "您可以这样联系我们: {contact}",
        "我们在这里: {location}",
        "我是自动回复,对此没有答案。会有人阅读您的消息。",
        "我已呼叫工作人员,他们会在这里回复您。",
    ),
    "ja": Phrases(
        "こんにちは|おはようございます|あなたは誰ですか|お名前は何ですか|あなたは何ですか|何ができますか|ボットですか|ロボットですか"
        "|あなたはロボットですか|人間ですか|あなたは人間ですか",
        "連絡先|連絡先を教えてください|お問い合わせ|どうやって連絡できますか|電話|電話番号|電話番号は何番ですか"
        "|メールアドレス|メールアドレスは何ですか|ウェブサイト|営業時間|営業時間は何時ですか|営業時間を教えてください"
        "|何時に開きますか",
        "住所|住所を教えてください|どこにありますか|お店はどこですか|場所はどこですか",
        "人と話したい|人間と話したい|担当者と話したい|オペレーターと話したい|担当者につないでください"
        "|オペレーターにつないでください|スタッフと話せますか",
        "{name}です。自動的に返信しています。",
        "こちらまでご連絡ください: {contact}",
        "所在地: {location}",
        "自動返信のため、これには回答できません。担当者がメッセージを読みます。",
        "担当者を呼びました。担当者がここで返信します。",
    ),
}

# Words that are frequent and carry little meaning. Question words (who, where) are not among them.
COMMON_WORDS = """
a an the i you we it is are am was be do does did can could would will my your our me us of to in on at for and or with
please s t m re ve ll have has had this that there so just want need know tell about
der die das ein eine einen einem einer ich du ihr sie wir es ist sind bin bist war sein mein meine dein deine ihre
ihren unser euer zu in im am auf fur und oder mit von bitte den dem des kann kannst konnen hat habe haben
le la les l un une des du de d je tu il elle nous vous on est sont suis etes etre mon ma mes votre vos notre nos ce
c que qu et ou a au aux en pour avec s j n ne pas se vos peux puis peut
el los las lo y o en con por para mi su sus tu me te se es son soy eres esta estan una del al
il lo gli uno i e ed di da del della dei che chi con per mio mia suo sua vostro vostri ho hai
o os as um uma eu voce voces e de do da dos das no na em com para por meu minha seu sua que
de het een ik je jij u wij we jullie is zijn ben bent mijn uw van op voor met en of te kan
i w z na do sie to jest sa czy moj moja wasz wasze mi mnie prosze
bir ve bu su ben sen siz biz mi mu icin ile de da
في من على الى عن هو هي هل ما انا انت انتم و او مع هذا هذه يمكنني ان
का की के है हैं हो हूं में से को पर और या मैं आप मेरा मेरी आपका आपके
的是 是什 什么 们的 你们 我们 您的 我的 吗 请问 可以 一下
です ます すか ですか ますか くだ ださ さい して を教 教え えて てく のは とは
"""
